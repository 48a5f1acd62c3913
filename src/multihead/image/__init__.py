"""Pictures: files to arrays, resizing and augmentation, preprocessing, datasets of images and their cache."""

from multihead.image.decode import ImageError, decode_base64, decode_image, read_size
from multihead.image.preprocess import ImageProcessor

__all__ = ["ImageError", "ImageProcessor", "decode_base64", "decode_image", "read_size"]
