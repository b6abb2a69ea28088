"""The device code that nvcc puts into a library: section .nv_fatbin, a chain of containers with an image for each GPU.

Cutting an image keeps its place: the library's offsets stay what they are, and zeros cost an archive nothing.
"""

import re
import struct
from dataclasses import dataclass

CONTAINER = struct.Struct("<IHHQ")  # magic, version, bytes of this header, bytes behind it
CONTAINER_MAGIC = 0xBA55ED50
IMAGE = struct.Struct("<HHIQIIHHIIIQ")
ARCH_OFFSET = 28  # of an image's header
# Flags of an image.
COMPRESSED = 0xA000
FOR_ONE_ARCH = 0x100000  # of sm_90a: code that no other architecture runs
# In place of that of an image that is cut: no GPU that the bundle is for looks for it.
OTHER_ARCH = 120
KERNEL_SECTION = re.compile(rb"\.text\.([A-Za-z0-9_$]+)")


@dataclass(frozen=True)
class Image:
    header: int  # offset in the file
    code: int
    size: int
    arch: int  # 90 is sm_90
    flags: int

    def is_compressed(self):
        return bool(self.flags & COMPRESSED)

    def is_for_one_arch(self):
        return bool(self.flags & FOR_ONE_ARCH)


def images(data, section):
    """Those of .nv_fatbin, in the order of the file."""
    at, end = section.offset, section.offset + section.size
    while at < end:
        magic, _, header_bytes, size = CONTAINER.unpack_from(data, at) if at + CONTAINER.size <= end else (0, 0, 0, 0)
        if magic != CONTAINER_MAGIC:
            # Containers begin at a multiple of 8.
            at = at // 8 * 8 + 8
            continue
        image, container_end = at + header_bytes, at + header_bytes + size
        while image < container_end:
            _, _, image_header_bytes, code_bytes, *_, arch, _, _, flags = IMAGE.unpack_from(data, image)
            yield Image(image, image + image_header_bytes, code_bytes, arch, flags)
            image += image_header_bytes + code_bytes
        at = container_end


def kernel_names(data, image):
    """The mangled names of the kernels of an image that is not compressed."""
    return sorted({name.decode() for name in KERNEL_SECTION.findall(data, image.code, image.code + image.size)})


def cut(data, image, arch):
    """Zeros in place of its code. arch: that of the bundle, of which no image without code may be left."""
    data[image.code : image.code + image.size] = bytes(image.size)
    if image.arch == arch:
        struct.pack_into("<I", data, image.header + ARCH_OFFSET, OTHER_ARCH)
