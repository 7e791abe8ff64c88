"""Conversations in forms that other trainers read, told by name."""

from collections.abc import Mapping
from typing import Any

OURS = "vlm_sft reads {'conversations': [{'from': 'human' | 'gpt' | 'system', 'value': TEXT}, ...]}"

_OPENAI_ROLES = ("user", "assistant")


def foreign_form(row: Mapping[str, Any]) -> str | None:
    """Name the form of a row that is not ours and how to turn it into ours, None where it is no known one."""
    match row:
        case {"messages": [{"role": _, "content": _}, *_]}:
            return "'messages' of 'role' and 'content' (OpenAI's form): rename messages to conversations, role to " \
                "from (user: human, assistant: gpt), content to value"  # fmt: skip
        case {"conversations": [{"role": _, "content": _}, *_]}:
            return "turns of 'role' and 'content' (OpenAI's form): rename role to from (user: human, assistant: gpt) " \
                "and content to value"  # fmt: skip
        case {"conversations": [*turns]} if any(_role(turn) in _OPENAI_ROLES for turn in turns):
            return "'from' user and assistant (OpenAI's roles): rename user to human, assistant to gpt"
        case {"messages": [{"from": _, "value": _}, *_]}:
            return "'messages' of 'from' and 'value': rename messages to conversations"
        case {"instruction": _, "output": _}:
            return "'instruction' and 'output' (Alpaca's form): write a human turn and a gpt turn"
    return None


def _role(turn: object) -> object:
    return turn.get("from") if isinstance(turn, Mapping) else None
