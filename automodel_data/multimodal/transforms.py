"""Image sizes on a patch grid, and the tensors made at those sizes."""

import numpy as np
import torch
from PIL import Image
from torch import nn
from torchvision.transforms.v2 import InterpolationMode
from torchvision.transforms.v2 import functional as F


class MaxLongEdgeMinShortEdgeResize(nn.Module):
    """Resize so that the long edge is at most ``max_size``, the short one at least ``min_size``, both on a grid.

    Args:
        max_size: Longest edge, in pixels.
        min_size: Shortest edge, in pixels; it yields to ``max_size``.
        stride: Edges become multiples of this, in pixels.
        max_pixels: Largest area, in pixels, shared by the images of a row.
        interpolation: Filter; bicubic where None.
        antialias: Whether to filter when shrinking.
    """

    def __init__(
        self,
        max_size: int,
        min_size: int,
        stride: int,
        max_pixels: int,
        interpolation: InterpolationMode | None = None,
        antialias: bool = True,
    ) -> None:
        super().__init__()
        self.max_size = max_size
        self.min_size = min_size
        self.stride = stride
        self.max_pixels = max_pixels
        self.interpolation = InterpolationMode.BICUBIC if interpolation is None else interpolation
        self.antialias = antialias

    def _make_divisible(self, value: int, stride: int) -> int:
        """Round to the nearest multiple of ``stride``, at least one."""
        return max(stride, round(value / stride) * stride)

    def _apply_scale(self, width: int, height: int, scale: float) -> tuple[int, int]:
        """Scale both edges and put them on the grid."""
        return (
            self._make_divisible(round(width * scale), self.stride),
            self._make_divisible(round(height * scale), self.stride),
        )

    def size_for(self, height: int, width: int, img_num: int = 1) -> tuple[int, int]:
        """Return the new ``(height, width)`` of an image of this size."""
        scale = min(self.max_size / max(width, height), 1.0)
        scale = max(scale, self.min_size / min(width, height))
        width, height = self._apply_scale(width, height, scale)
        limit = self.max_pixels / img_num
        if width * height > limit:
            width, height = self._apply_scale(width, height, limit / (width * height))
        if max(width, height) > self.max_size:
            width, height = self._apply_scale(width, height, self.max_size / max(width, height))
        return height, width

    def forward(self, img: Image.Image | torch.Tensor, img_num: int = 1) -> Image.Image | torch.Tensor:
        """Resize ``img``, one of ``img_num`` images of its row."""
        width, height = img.size if isinstance(img, Image.Image) else (img.shape[-1], img.shape[-2])
        size = list(self.size_for(height, width, img_num))
        return F.resize(img, size, interpolation=self.interpolation, antialias=self.antialias)


class ImageTransform:
    """Resize to the patch grid, then normalise to float32 [3, H, W].

    Args:
        max_image_size: Longest edge, in pixels.
        min_image_size: Shortest edge, in pixels.
        image_stride: Edge of one token, in pixels.
        max_pixels: Largest area, in pixels, shared by the images of a row.
        image_mean: Mean by channel of values in [0, 1].
        image_std: Standard deviation by channel.
    """

    def __init__(
        self,
        max_image_size: int,
        min_image_size: int,
        image_stride: int,
        max_pixels: int = 14 * 14 * 9 * 1024,
        image_mean: tuple[float, ...] = (0.5, 0.5, 0.5),
        image_std: tuple[float, ...] = (0.5, 0.5, 0.5),
    ) -> None:
        self.stride = image_stride
        self.max_image_size = max_image_size
        self.min_image_size = min_image_size
        self.resize_transform = MaxLongEdgeMinShortEdgeResize(
            max_size=max_image_size, min_size=min_image_size, stride=image_stride, max_pixels=max_pixels
        )
        self._mean_C = torch.tensor(image_mean, dtype=torch.float32)
        self._std_C = torch.tensor(image_std, dtype=torch.float32)

    def __call__(self, img: Image.Image, img_num: int = 1) -> torch.Tensor:
        """Return the tensor [3, H, W] of an RGB image."""
        return self.normalize(np.array(self.resize_transform(img, img_num=img_num)))

    @property
    def largest_edge(self) -> int:
        """The longest edge that can come out, in pixels."""
        return max(self.stride, round(self.max_image_size / self.stride) * self.stride)

    def size_for(self, height: int, width: int, img_num: int = 1) -> tuple[int, int]:
        """Return the ``(height, width)`` that an image of this size gets."""
        return self.resize_transform.size_for(height, width, img_num)

    def normalize(self, pixels_HWC: np.ndarray) -> torch.Tensor:
        """Turn uint8 [H, W, 3] into float32 [3, H, W], ``(x / 255 - mean) / std``."""
        height, width, channels = pixels_HWC.shape
        tensor_CHW = torch.empty(channels, height, width)
        self.normalize_into(tensor_CHW.permute(1, 2, 0), torch.from_numpy(pixels_HWC))
        return tensor_CHW

    def normalize_into(self, out: torch.Tensor, pixels: torch.Tensor) -> None:
        """Write normalised uint8 ``pixels`` into float32 ``out``; channels take turns along the last axis of both.

        Several pixels in one last axis are faster than one: then it is long enough to vectorise.
        """
        times = out.shape[-1] // len(self._mean_C)
        out.copy_(pixels)
        out.div_(255).sub_(self._mean_C.repeat(times)).div_(self._std_C.repeat(times))
