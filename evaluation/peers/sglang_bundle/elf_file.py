"""Sections and functions of a shared library (ELF, 64 bits, little endian), as far as cutting it needs them."""

import struct
from dataclasses import dataclass

SECTION_HEADER = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
RELOCATION = struct.Struct("<QQq")
FUNCTION = 2  # STT_FUNC
ABSOLUTE, RELATIVE = 1, 8  # R_X86_64_64: of a symbol; R_X86_64_RELATIVE: of the library


@dataclass(frozen=True)
class Section:
    name: str
    address: int  # in the loaded library
    offset: int  # in the file
    size: int


@dataclass(frozen=True)
class Function:
    name: str  # mangled
    address: int
    size: int


def text_at(data, offset):
    return bytes(data[offset : data.find(b"\0", offset)]).decode()


def sections(data):
    """{name: Section} of the bytes (or the map) of a file."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError("this is no ELF file of 64 bits, little endian")
    (table,) = struct.unpack_from("<Q", data, 0x28)
    size, count, names_index = struct.unpack_from("<HHH", data, 0x3A)
    headers = [SECTION_HEADER.unpack_from(data, table + size * index) for index in range(count)]
    names_offset = headers[names_index][4]
    of_name = {}
    for name, _, _, address, offset, length, *_ in headers:
        section = Section(text_at(data, names_offset + name), address, offset, length)
        of_name[section.name] = section
    return of_name


def functions(data):
    """The functions that the library exports and that lie in its .text."""
    of_name = sections(data)
    symbols, names, code = (of_name[name] for name in (".dynsym", ".dynstr", ".text"))
    found = []
    for offset in range(symbols.offset, symbols.offset + symbols.size, SYMBOL.size):
        name, info, _, _, address, size = SYMBOL.unpack_from(data, offset)
        if info & 15 == FUNCTION and code.address <= address < code.address + code.size:
            found.append(Function(text_at(data, names.offset + name), address, size))
    return found


def start_addresses(data):
    """Of the functions that run when the library is loaded."""
    of_name = sections(data)
    starts, relocations, symbols = (of_name[name] for name in (".init_array", ".rela.dyn", ".dynsym"))
    end = relocations.offset + relocations.size
    found = []
    for offset in range(relocations.offset, end, RELOCATION.size):
        place, info, target = RELOCATION.unpack_from(data, offset)
        if not starts.address <= place < starts.address + starts.size:
            continue
        kind, symbol = info & 0xFFFFFFFF, info >> 32
        if kind not in (ABSOLUTE, RELATIVE):
            raise ValueError(f"a relocation of kind {kind} in .init_array")
        if kind == ABSOLUTE:
            target += SYMBOL.unpack_from(data, symbols.offset + SYMBOL.size * symbol)[4]
        found.append(target)
    return found
