"""Cuts SGLang's compiled kernels to what dense bf16 models with heads of 128 run on an sm_90 GPU."""

import mmap
import re
import subprocess
from contextlib import contextmanager

import device_code
import elf_file

ARCH = 90
HEAD_DIM = "128"
ELEMENT = "cutlass::bfloat16_t"
# FlashAttention 3: main loops by tile, head dimension of V, element type; of the flags the third is the soft cap.
MAIN_LOOP = re.compile(
    r"flash::CollectiveMainloopFwdSm90<\d+, cute::tuple<.*?>, (cute::tuple<.*?> ?>), (\d+), (\S+), float, \S+, "
    r"(?:true|false), (?:true|false), (true|false),"
)
TILE = re.compile(r"C<(\d+)>")
# Host functions that launch them: architecture, head dimensions of K and V, ..., element type.
LAUNCHER = re.compile(r"void run_flash_fwd<(.*?)>\(")
ENTRY = re.compile(r"void run_mha_fwd_<(.*?)>\(")
FOR_SM80 = re.compile(r"(.* )?flash::(FlashAttnFwdSm80|CollectiveMainloopFwdSm80)<")


@contextmanager
def mapped(path):
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as data:
        yield data
        data.flush()


def demangled(names):
    """The same number of names, as c++filt writes them."""
    done = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True)
    return done.stdout.removesuffix("\n").split("\n")


def is_wanted_main_loop(found):
    tile, value_dim, element, soft_cap = found.groups()
    return (TILE.findall(tile)[2], value_dim, element, soft_cap) == (HEAD_DIM, HEAD_DIM, ELEMENT, "false")


def has_wanted_kernels(names):
    """Whether an image of FlashAttention is kept, by its kernels' names: all of it or nothing."""
    if any("enable_sm80" in name for name in names):
        return False
    if not any("CollectiveMainloopFwdSm90" in name for name in names):
        # What all need: combining splits, lengths of a batch.
        return True
    return any(is_wanted_main_loop(found) for found in map(MAIN_LOOP.search, names) if found)


def is_wanted_on_host(name):
    if found := LAUNCHER.match(name):
        words = found[1].split(", ")
        return (words[:3], words[4], words[8]) == ([str(ARCH), HEAD_DIM, HEAD_DIM], ELEMENT, "false")
    if found := MAIN_LOOP.match(name):
        return is_wanted_main_loop(found)
    if found := ENTRY.match(name):
        return found[1].split(", ")[:4] == [str(ARCH), ELEMENT, HEAD_DIM, HEAD_DIM]
    return not FOR_SM80.match(name)


def cut_device_code(path, is_kept):
    """is_kept(data, image) is asked about images for sm_90a; all others go. Bytes that are kept."""
    kept_bytes = 0
    with mapped(path) as data:
        for image in list(device_code.images(data, elf_file.sections(data)[".nv_fatbin"])):
            if image.arch == ARCH and image.is_for_one_arch() and is_kept(data, image):
                kept_bytes += image.size
            else:
                device_code.cut(data, image, ARCH)
    return kept_bytes


def cut_flash_attention(path):
    """flash_ops: 1.1 GB, of which attention in bf16 with heads of 128 is a small part.

    Device code for sm_80 and sm_86 goes, and of that for sm_90a the images without a wanted kernel. What is compressed
    are heads of other sizes. Then the host functions that launch what is gone: they are 80 MB.
    """

    def is_kept(data, image):
        return not image.is_compressed() and has_wanted_kernels(demangled(device_code.kernel_names(data, image)))

    kept_bytes = cut_device_code(path, is_kept)
    with mapped(path) as data:
        code = elf_file.sections(data)[".text"]
        functions = elf_file.functions(data)
        names = demangled([function.name for function in functions])
        wanted = [is_wanted_on_host(name) for name in names]
        kept = [function for function, is_wanted in zip(functions, wanted, strict=True) if is_wanted]
        addresses = {function.address for function in kept}
        # One body may have several names.
        gone = [
            function
            for function, is_wanted in zip(functions, wanted, strict=True)
            if not is_wanted and function.address not in addresses
        ]
        check_apart(kept, gone, elf_file.start_addresses(data))
        for function in gone:
            begin = function.address - code.address + code.offset
            data[begin : begin + function.size] = bytes(function.size)
    return kept_bytes


def check_apart(kept, gone, start_addresses):
    """Raises ValueError where a function that is kept, or runs when the library is loaded, lies in one that goes."""
    spans = sorted((function.address, function.address + function.size, False) for function in gone)
    spans += [(function.address, function.address + function.size, True) for function in kept]
    spans += [(address, address + 1, True) for address in start_addresses]
    reached, of_gone = 0, 0
    for begin, end, is_kept in sorted(spans):
        if begin < (of_gone if is_kept else reached):
            raise ValueError(f"functions that are kept and functions that go overlap at {begin:#x}")
        if is_kept:
            reached = max(reached, end)
        else:
            of_gone = max(of_gone, end)


def cut_common_kernels(path):
    """common_ops of sm_90: the images for sm_90a. Those for sm_90 are the same kernels, the rest is for other GPUs."""
    return cut_device_code(path, lambda data, image: True)
