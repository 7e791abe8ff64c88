"""Images whose size is known before their pixels: headers first, decode on demand, one policy for RGB.

::

    bytes or file --ImagePolicy.open--> EncodedImage (size known)
                  --backend.decode--> RGB pixels --backend.resize--> uint8 [H, W, 3]
"""

import io
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from PIL import ExifTags, Image, UnidentifiedImageError
from torchvision.io import ImageReadMode, decode_jpeg
from torchvision.transforms.v2 import InterpolationMode
from torchvision.transforms.v2 import functional as F

from automodel_data.errors import DataError, SkipSample
from automodel_data.storage import is_uri, read_bytes

Pixels = Image.Image | torch.Tensor
"""A decoded RGB image: Pillow's, or a uint8 tensor [3, H, W]."""

_WHITE = (255, 255, 255)
_TRANSPOSE = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_BOMBS = (Image.DecompressionBombError, Image.DecompressionBombWarning)


class ImageSource(Protocol):
    """Anything with a known size that can be decoded later.

    Sources of one ``group`` (an image; the frames of a clip) share their decoding and are decoded one after another.
    Both are told apart by identity, as objects are unless they say otherwise.
    """

    @property
    def width(self) -> int: ...
    @property
    def height(self) -> int: ...
    @property
    def group(self) -> object: ...

    def __hash__(self) -> int: ...

    def decode(self, backend: "ImageBackend") -> Pixels:
        """Return the pixels, RGB and upright; raise ``SkipSample`` where there are none."""
        ...


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class EncodedImage:
    """An image file, undecoded. ``width`` and ``height`` are those after its orientation is applied.

    ``content`` is the file's bytes, or the path of a local file that is read again when it is decoded.
    """

    content: bytes | str = field(repr=False)
    width: int
    height: int
    format: str
    mode: str
    orientation: int
    origin: str

    @property
    def group(self) -> object:
        return self

    def decode(self, backend: "ImageBackend") -> Pixels:
        return backend.decode(self)

    def read(self) -> bytes:
        """Return the file's bytes.

        Raises:
            SkipSample: the file cannot be read any more.
        """
        if isinstance(self.content, bytes):
            return self.content
        try:
            return read_bytes(self.content)
        except OSError as error:
            raise SkipSample("unreadable image", f"{self.origin}: {error}") from error


@dataclass(frozen=True, eq=False, slots=True)
class DecodedImage:
    """An image that the caller decoded already."""

    image: Image.Image

    @property
    def width(self) -> int:
        return self.image.width

    @property
    def height(self) -> int:
        return self.image.height

    @property
    def group(self) -> object:
        return self

    def decode(self, backend: "ImageBackend") -> Pixels:
        return to_rgb(self.image)


@dataclass(frozen=True, kw_only=True, slots=True)
class ImagePolicy:
    """How image files are opened.

    Args:
        exif_orientation: Turn images upright as their EXIF data says, before sizes are read.
        max_pixels: Images with more pixels are refused before they are decoded (decompression bombs).
    """

    exif_orientation: bool = True
    max_pixels: int = 178_956_970

    def open(self, content: bytes | str | None, origin: str) -> EncodedImage:
        """Read an image's header; ``content`` is its bytes or its path.

        Raises:
            SkipSample: the file is missing, empty, no image, or too large.
        """
        if not isinstance(content, bytes | str):
            raise SkipSample("missing image", f"{origin} is {content!r:.40}, not the bytes of a file")
        try:
            if isinstance(content, str) and is_uri(content):
                content = read_bytes(content)
            with Image.open(io.BytesIO(content) if isinstance(content, bytes) else content) as header:
                orientation = _orientation(header) if self.exif_orientation else 1
                width, height, mode, kind = header.width, header.height, header.mode, header.format or ""
        except FileNotFoundError as error:
            raise SkipSample("missing image", origin) from error
        except _BOMBS as error:
            raise SkipSample("image too large", f"{origin}: {error}") from error
        except UnidentifiedImageError as error:  # its own text names an object in memory
            raise SkipSample("unreadable image", f"{origin}: no format that Pillow knows") from error
        except Exception as error:  # spoilt bytes make plugins raise anything
            raise SkipSample("unreadable image", f"{origin}: {error}") from error
        if width * height > self.max_pixels:
            raise SkipSample("image too large", f"{origin}: {width}x{height} exceeds {self.max_pixels} pixels")
        if orientation >= 5:
            width, height = height, width
        return EncodedImage(
            content=content, width=width, height=height, format=kind, mode=mode, orientation=orientation, origin=origin
        )


def _orientation(header: Image.Image) -> int:
    """Return the EXIF orientation (1: upright). Pillow itself turns TIFF images; a PNG is not decoded to search it."""
    if header.format == "TIFF" or (header.format == "PNG" and "exif" not in header.info):
        return 1
    value = header.getexif().get(ExifTags.Base.Orientation, 1)
    return value if value in _TRANSPOSE else 1


def to_rgb(image: Image.Image) -> Image.Image:
    """Return the image as RGB: transparency in any mode is composited on white, 16-bit greys are scaled."""
    if image.mode.startswith("I"):
        image = _scaled_grey(image)
    if image.mode in ("RGBA", "LA", "PA", "RGBa") or "transparency" in image.info:
        rgba = image.convert("RGBA")
        canvas = Image.new("RGB", rgba.size, _WHITE)
        canvas.paste(rgba, mask=rgba.getchannel("A"))
        return canvas
    return image if image.mode == "RGB" else image.convert("RGB")


def _scaled_grey(image: Image.Image) -> Image.Image:
    """Scale 16-bit greys to 8 bits; a transparent level becomes white."""
    levels = np.asarray(image).astype(np.int64)
    scaled = (levels.clip(0, 65535) // 257).astype(np.uint8)
    if "transparency" in image.info:
        scaled[levels == image.info["transparency"]] = 255
    return Image.fromarray(scaled)


class PillowBackend:
    """Decode and resize with Pillow: bit-equal to the published pipelines."""

    def decode(self, image: EncodedImage) -> Pixels:
        """Decode to RGB, upright.

        Raises:
            SkipSample: the file is truncated or broken.
        """
        content = image.read()
        try:
            with Image.open(io.BytesIO(content)) as encoded:
                encoded.load()  # while its file is open: to_rgb hands RGB images through
                rgb = to_rgb(encoded)
        except Exception as error:  # as in ImagePolicy.open
            raise SkipSample("undecodable image", f"{image.origin}: {error}") from error
        turn = _TRANSPOSE.get(image.orientation)
        return rgb if turn is None else rgb.transpose(turn)

    def resize(self, pixels: Pixels, height: int, width: int) -> np.ndarray:
        """Resize (bicubic, antialiased) to uint8 [height, width, 3]."""
        if isinstance(pixels, torch.Tensor):
            raise TypeError("the pillow backend resizes Pillow images")
        return np.array(pixels.resize((width, height), Image.Resampling.BICUBIC))


class TorchvisionBackend:
    """Decode plain JPEG with libjpeg-turbo and resize in uint8: several times faster, within 3 levels of Pillow."""

    def __init__(self) -> None:
        self._fallback = PillowBackend()

    def decode(self, image: EncodedImage) -> Pixels:
        """Decode to RGB, upright; what ``decode_jpeg`` cannot read goes to Pillow.

        Raises:
            SkipSample: the file is truncated or broken.
        """
        if image.format != "JPEG" or image.mode not in ("RGB", "L") or image.orientation != 1:
            return self._fallback.decode(image)
        encoded = torch.frombuffer(bytearray(image.read()), dtype=torch.uint8)
        try:
            return decode_jpeg(encoded, mode=ImageReadMode.RGB)
        except RuntimeError as error:
            what = str(error).rpartition(", ")[2]  # behind a place in torchvision's C++ source
            raise SkipSample("undecodable image", f"{image.origin}: {what}") from error

    def resize(self, pixels: Pixels, height: int, width: int) -> np.ndarray:
        """Resize (bicubic, antialiased, in uint8) to uint8 [height, width, 3]."""
        pixels_CHW = pixels if isinstance(pixels, torch.Tensor) else torch.from_numpy(np.array(pixels)).permute(2, 0, 1)
        if pixels_CHW.shape[-2:] != (height, width):
            pixels_CHW = F.resize(pixels_CHW, [height, width], interpolation=InterpolationMode.BICUBIC, antialias=True)
        return pixels_CHW.permute(1, 2, 0).numpy()


ImageBackend = PillowBackend | TorchvisionBackend
IMAGE_BACKENDS: dict[str, type[ImageBackend]] = {"pillow": PillowBackend, "torchvision": TorchvisionBackend}


def image_backend(name: str) -> ImageBackend:
    """Return the backend of that name.

    Raises:
        DataError: there is none.
    """
    if name not in IMAGE_BACKENDS:
        raise DataError(f"image_backend is {name!r}; it must be one of {sorted(IMAGE_BACKENDS)}")
    return IMAGE_BACKENDS[name]()
