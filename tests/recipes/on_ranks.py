"""Run FUNCTION of a test FILE on this rank; its result goes to FOLDER/rank<N>.pt."""

import importlib.util
import os
import sys
from pathlib import Path

import torch

from recipes import distributed

if __name__ == "__main__":
    file, function, folder = sys.argv[1:]
    spec = importlib.util.spec_from_file_location("test_file", file)
    module = importlib.util.module_from_spec(spec)
    sys.modules["test_file"] = module
    spec.loader.exec_module(module)
    result = getattr(module, function)(Path(folder))
    torch.save(result, Path(folder, f"rank{os.environ['RANK']}.pt"))
    distributed.stop()
