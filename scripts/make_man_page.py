#!/usr/bin/env python3
"""Writes tandem.1.gz from what `tandem --help` and the --help of every subcommand print.

    scripts/make_man_page.py TANDEM OUTPUT.gz

The same program gives the same bytes: no date, no time stamp, and variables TANDEM_* of the caller are not seen.
Fails if a help text has a line that it does not understand. Standard library only.
"""

import gzip
import os
import pathlib
import re
import subprocess
import sys

HEADING = re.compile(r"^(\w[\w ]*):$")
ENTRY = re.compile(r"^  \S")
# Where an entry's text begins: on its line, or alone on the next one if the entry is longer.
TEXT_COLUMN = 30
TEXT = " " * TEXT_COLUMN
VARIABLE = re.compile(r" ?\(Env:(\w+)\)")

INTRODUCTION = """\
.SH DESCRIPTION
Tandem serves large language models. It uses the host CPU as a second attention engine: the KV cache of some requests
is kept in host memory and their decode attention computed there, beside the GPU. Without a GPU all runs on the CPU.
.PP
The server speaks the OpenAI API and listens on 127.0.0.1:8000 unless told otherwise. SIGTERM and SIGINT let answers
under way finish; a second signal stops at once. SIGHUP opens the access log again, if there is one. /ready answers 200
when requests are served, else 503.
"""

CLOSING = """\
.SH ENVIRONMENT
An option with a variable beside it is read from there if it is not given; an empty variable counts as none,
but that of a key is an error.
.TP
.B XDG_CACHE_HOME
Folder below which measured costs are kept (default: ~/.cache).
.SH FILES
.TP
.I /etc/tandem/tandem.env
Variables of the service
.BR tandem.service ,
where it was installed as a package.
.TP
.I /etc/tandem/api-keys
Its keys, as lines of NAME KEY, if the variable TANDEM_API_KEY_FILE says so there.
.SH "EXIT STATUS"
0: done. 1: an error while running. 2: wrong usage.
.SH EXAMPLES
.nf
tandem doctor
tandem serve model.gguf
tandem generate model.gguf \\-p "Once upon a time" \\-n 50
.fi
"""


def escape(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text.startswith((".", "'")) else text


class Help:
    """One help text: what the command does, how it is called, its sections of (entry, text), its subcommands."""

    def __init__(self, program, path):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TANDEM_")}
        command = [program, *path, "--help"]
        printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        lines = [line for line in printed.split("\n") if line.strip()]
        self.path = path
        self.description = lines[0]
        if not lines[1].startswith("Usage: "):
            raise ValueError(f"{' '.join(command)}: the second line is no usage: {lines[1]!r}")
        self.usage = lines[1].removeprefix("Usage: ")
        self.sections = {}
        entries = None
        for line, next_line in zip(lines[2:], [*lines[3:], ""]):
            if heading := HEADING.match(line):
                entries = self.sections.setdefault(heading[1], [])
            elif entries is not None and ENTRY.match(line):
                if next_line.startswith(TEXT):
                    entries.append((line.strip(), next_line.strip()))
                else:
                    entries.append((line[:TEXT_COLUMN].strip(), line[TEXT_COLUMN:].strip()))
            elif not (entries and line == TEXT + entries[-1][1]):
                raise ValueError(f"{' '.join(command)}: a line that is neither heading nor entry: {line!r}")

    def subcommands(self):
        return [entry for entry, _ in self.sections.get("Subcommands", [])]


def all_helps(program, path=()):
    helped = Help(program, list(path))
    yield helped
    for name in helped.subcommands():
        yield from all_helps(program, [*path, name])


def options_of(helped, shown):
    """The entries of a help text but subcommands and those of `shown`, a set of (entry, text)."""
    for heading, entries in helped.sections.items():
        if heading == "Subcommands":
            continue
        for entry, text in entries:
            if (entry, text) in shown:
                continue
            variable = VARIABLE.search(entry)
            yield ".TP"
            yield f".B {escape(VARIABLE.sub('', entry))}"
            if variable:
                text += f"{'' if text.endswith(('.', '?')) else '.'} Variable: {variable[1]}."
            yield escape(text)


def man_page(program):
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.split("\n")[0]
    helps = list(all_helps(program))
    top = helps[0]
    yield f'.TH TANDEM 1 "" "{escape(version)}" "User Commands"'
    yield ".SH NAME"
    yield f"tandem \\- {escape(top.description.removeprefix('Tandem ').rstrip('.'))}"
    yield ".SH SYNOPSIS"
    for helped in helps:
        if not helped.subcommands():
            yield f".B {escape(helped.usage)}"
            yield ".br"
    yield INTRODUCTION.rstrip()
    yield ".SH OPTIONS"
    yield from options_of(top, set())
    common = {("-h,--help", "Print this help message and exit")}
    engine = set()
    yield ".SH COMMANDS"
    for helped in helps[1:]:
        yield f'.SS "tandem {escape(" ".join(helped.path))}"'
        yield escape(helped.description) + "."
        if engine and len(set(helped.sections.get("Options", [])) & engine) > len(engine) // 2:
            yield "Options of the engine are those of"
            yield '.BR "tandem serve" .'
        yield from options_of(helped, common | engine)
        if helped.path == ["serve"]:
            # What another command has in the same words is the engine's.
            generate = next(each for each in helps if each.path == ["generate"])
            entries = [set(each.sections.get("Options", [])) for each in (helped, generate)]
            engine = entries[0] & entries[1] - common
    yield CLOSING.rstrip()


def main():
    if len(sys.argv) != 3:
        print("usage: scripts/make_man_page.py TANDEM OUTPUT.gz", file=sys.stderr)
        return 2
    try:
        page = "\n".join(man_page(sys.argv[1])) + "\n"
    except (OSError, subprocess.CalledProcessError, ValueError) as error:
        print(f"make_man_page.py: {error}", file=sys.stderr)
        return 1
    pathlib.Path(sys.argv[2]).write_bytes(gzip.compress(page.encode(), compresslevel=9, mtime=0))
    return 0


if __name__ == "__main__":
    sys.exit(main())
