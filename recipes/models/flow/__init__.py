"""Flow-matching transformers of diffusers behind one call: noisy latents, contexts and text in, velocity out.

Latents are cut into 2 x 2 patches, the channel slowest inside a token, and laid end to end::

    [target; context 1; context 2; ...] --transformer--> the target's span --> velocity
"""

from recipes.models.flow.flux import FluxConfig
from recipes.models.flow.inputs import FlowInputs
from recipes.models.flow.qwen_image import QwenImageConfig

__all__ = ["FlowInputs", "FluxConfig", "QwenImageConfig"]
