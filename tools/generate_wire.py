"""Writes the generated modules of src/flintmq/wire from the tables in spec/.

    spec/constants.txt   ->  amqp.py, amqp.pxd
    spec/methods.txt     ->  amqp.py, amqp.pxd, methods.py
    spec/properties.txt  ->  amqp.py, amqp.pxd, properties.py

`python tools/generate_wire.py` writes them; with --check it writes nothing and exits with 1 when a file
is not what the tables give. The code that does not depend on the tables is in tools/wire_templates/,
where a line `# <<NAME>>` stands for a generated block.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from wire_spec import (
    VERSION_NAMES,
    VERSIONS,
    Argument,
    Constant,
    Method,
    read_constants,
    read_methods,
    read_properties,
)

ROOT = Path(__file__).resolve().parent.parent
TEMPLATES = ROOT / "tools" / "wire_templates"
PACKAGE = ROOT / "src" / "flintmq"

LINE_MAX = 110

# Types of a fixed size: the letter of the struct module, and the octets.
FIXED = {"octet": ("B", 1), "short": ("H", 2), "long": ("I", 4), "longlong": ("Q", 8), "timestamp": ("Q", 8)}

# What a type is in Python, and the value of an argument that is not given.
PYTHON = {
    "bit": ("bool", "False"),
    "octet": ("int", "0"),
    "short": ("int", "0"),
    "long": ("int", "0"),
    "longlong": ("int", "0"),
    "timestamp": ("int", "0"),
    "shortstr": ("str", '""'),
    "longstr": ("bytes", 'b""'),
    "table": ("FieldTable", "{}"),
    "content": ("Content", "Content()"),
}


def listed(head: str, items: Sequence[str], tail: str, indent: int = 0) -> list[str]:
    """`head` + items + `tail` on one line where it fits, else an item a line."""
    pad = " " * indent
    single = "," if len(items) == 1 and head.endswith("(") and tail.startswith(")") else ""
    line = f"{pad}{head}{', '.join(items)}{single}{tail}"
    if len(line) <= LINE_MAX:
        return [line]
    return [f"{pad}{head}", *(f"{pad}    {item}," for item in items), f"{pad}{tail}"]


def quoted(names: Iterable[str]) -> list[str]:
    return [f'"{name}"' for name in names]


def segments(arguments: Sequence[Argument]) -> list[list[list[Argument]]]:
    """Groups a layout: a segment is a run of fixed-size octets, or one argument of variable size.

    An element of a run is a list of arguments: up to eight bits that share an octet, or a single one.
    """
    runs: list[list[list[Argument]]] = []
    in_run = False
    for argument in arguments:
        fixed = is_fixed(argument)
        if not (fixed and in_run):
            runs.append([[argument]])
        elif argument.type == "bit" and runs[-1][-1][-1].type == "bit" and len(runs[-1][-1]) < 8:
            runs[-1][-1].append(argument)
        else:
            runs[-1].append([argument])
        in_run = fixed
    return runs


def run_format(run: list[list[Argument]]) -> str:
    return "".join("B" if octet[0].type == "bit" else FIXED[octet[0].type][0] for octet in run)


def run_sizes(run: list[list[Argument]]) -> list[tuple[str, int]]:
    return [(octet[0].name, 1 if octet[0].type == "bit" else FIXED[octet[0].type][1]) for octet in run]


def is_fixed(argument: Argument) -> bool:
    return argument.type == "bit" or argument.type in FIXED


def decode_run(method: Method, run: list[list[Argument]]) -> list[str]:
    """Reads a run of fixed-size arguments at `at`; an octet of bits goes through the variable `bits`."""
    sizes = run_sizes(run)
    total = sum(size for _, size in sizes)
    lines = [f"    if at + {total} > end:" if total > 1 else "    if at >= end:"]
    if len(sizes) == 1:
        lines.append(f'        raise truncated("{method.full_name} {sizes[0][0]}")')
    else:
        lines += listed("sizes = (", [f'("{name}", {size})' for name, size in sizes], ")", 8)
        lines.append(f'        raise truncated_among("{method.full_name}", end - at, sizes)')
    targets = [decode_target(octet) for octet in run]
    if targets == ["_"]:
        pass
    elif total == 1:
        lines.append(f"    {targets[0]} = octets[at]")
    else:
        value = f"_{run_format(run)}.unpack_from(octets, at)"
        target = f"({targets[0]},)" if len(targets) == 1 else ", ".join(targets)
        line = f"    {target} = {value}"
        broken = ["    (", *(f"        {name}," for name in targets), f"    ) = {value}"]
        lines += [line] if len(line) <= LINE_MAX else broken
    lines.append(f"    at += {total}")
    for octet in run:
        for place, bit in enumerate(octet):
            if bit.type == "bit" and not bit.reserved:
                lines.append(f"    method.{bit.name} = (bits & {1 << place}) != 0")
    return lines


def decode_target(octet: list[Argument]) -> str:
    """The variable that an element of a run is read into."""
    if all(argument.reserved for argument in octet):
        return "_"
    return "bits" if octet[0].type == "bit" else f"method.{octet[0].name}"


def decode_variable(method: Method, argument: Argument) -> list[str]:
    """Reads one argument of variable size at `at`."""
    what = f"{method.full_name} {argument.name}"
    if argument.type == "table":
        call = f'decode_arguments(octets, at, end, "{what}")'
        if argument.reserved:
            return [f"_, at = {call}"]
        if argument.optional:
            return [
                f"method.{argument.name} = {{}}",
                "if at < end:",
                f"    method.{argument.name}, at = {call}",
            ]
        return [f"method.{argument.name}, at = {call}"]
    if argument.type == "content":
        return [f'method.{argument.name}, at = decode_content(octets, at, end, "{what}")']
    if argument.type == "shortstr":
        value = 'octets[at + 1 : stop].decode("utf-8", "surrogateescape")'
        lines = ["stop = at + 1 + octets[at] if at < end else end + 1"]
    else:
        value = "octets[at + 4 : stop]"
        lines = ["stop = at + 4 + _I.unpack_from(octets, at)[0] if at + 4 <= end else end + 1"]
    lines += ["if stop > end:", f'    raise truncated("{what}")']
    if not argument.reserved:
        lines.append(f"method.{argument.name} = {value}")
    return [*lines, "at = stop"]


def decode_function(method: Method, name: str, layout: Sequence[Argument]) -> list[str]:
    result = f"tuple[{method.python_name}, int]"
    head = f"def {name}(octets: bytes, end: int) -> {result}:"
    broken = [f"def {name}(", "    octets: bytes, end: int", f") -> {result}:"]
    lines = [
        *([head] if len(head) <= LINE_MAX else broken),
        f"    method = {method.python_name}.__new__({method.python_name})",
        "    at = 4",
    ]
    for run in segments(layout):
        if is_fixed(run[0][0]):
            lines += decode_run(method, run)
        else:
            lines += [f"    {line}" for line in decode_variable(method, run[0][0])]
    carried = {argument.name for argument in layout if not argument.reserved}
    lines += [
        f"    method.{absent} = {PYTHON[kind][1]}"
        for absent, kind in method.fields.items()
        if absent not in carried
    ]
    return [*lines, "    return method, at"]


def encode_octet(octet: list[Argument]) -> str:
    if all(argument.reserved for argument in octet):
        return "0"
    return "bits" if octet[0].type == "bit" else f"method.{octet[0].name}"


def encode_variable(argument: Argument) -> list[str]:
    value = f"method.{argument.name}"
    if argument.type == "shortstr":
        return ['b"\\x00"' if argument.reserved else f"encode_shortstr({value})"]
    if argument.reserved:
        return ['b"\\x00\\x00\\x00\\x00"']
    if argument.type == "longstr":
        return [f"_I.pack(len({value}))", value]
    if argument.type == "content":
        return [f"encode_content({value})"]
    return [f"encode_table({value})" + (f' if {value} else b""' if argument.optional else "")]


def encode_function(method: Method, name: str, layout: Sequence[Argument]) -> list[str]:
    lines = [f"def {name}(method: {method.python_name}, prefix: bytes) -> bytes:"]
    parts = ["prefix"]
    for run in segments(layout):
        first = run[0][0]
        if not is_fixed(first):
            parts += encode_variable(first)
            continue
        for octet in run:
            if octet[0].type == "bit":
                lines += encode_bits(octet)
        parts.append(f"_{run_format(run)}.pack({', '.join(map(encode_octet, run))})")
    return [*lines, *encode_parts(parts)]


def encode_bits(octet: list[Argument]) -> list[str]:
    lines: list[str] = []
    for place, bit in enumerate(octet):
        if bit.reserved:
            continue
        if not lines:
            lines.append(f"    bits = {1 << place} if method.{bit.name} else 0")
        else:
            lines += [f"    if method.{bit.name}:", f"        bits |= {1 << place}"]
    return lines


def encode_parts(parts: list[str]) -> list[str]:
    """The return statement that joins the parts; a part with a long call is broken over lines."""
    if len(parts) <= 3 and len(" + ".join(parts)) <= LINE_MAX - 11 and " if " not in parts[-1]:
        return [f"    return {' + '.join(parts)}"]
    lines = ['    return b"".join(', "        ("]
    for part in parts:
        if len(part) + 13 <= LINE_MAX:
            lines.append(f"            {part},")
            continue
        head, _, arguments = part.partition("(")
        lines.append(f"            {head}(")
        lines += [f"                {argument}," for argument in arguments.removesuffix(")").split(", ")]
        lines.append("            ),")
    return [*lines, "        )", "    )"]


# methods.py


def summary(method: Method) -> str:
    sender = {"client": "the client", "server": "the server", "both": "either peer"}[method.sender]
    text = f"{method.full_name}, sent by {sender}"
    if method.content:
        text += " with content"
    if method.replies:
        text += f"; answered by {' or '.join(method.replies)}"
    return text + "."


def class_code(method: Method) -> list[str]:
    lines = [
        f"class {method.python_name}(Method):",
        f'    """{summary(method)}"""',
        "",
        *listed("FIELDS = (", quoted(method.fields), ")", 4),
        "    __slots__ = FIELDS",
        f'    NAME = "{method.full_name}"',
        f"    CLASS_ID = {method.class_id}",
        f"    METHOD_ID = {method.id}",
        f"    SYNC = {method.sync}",
        f"    CONTENT = {method.content}",
        *listed("REPLIES = (", quoted(method.replies), ")", 4),
        f"    FROM_CLIENT = {method.sender != 'server'}",
        f"    FROM_SERVER = {method.sender != 'client'}",
        *listed("VERSIONS = (", [str(version) for version in VERSIONS if version in method.ids], ")", 4),
    ]
    if method.fields:
        lines += ["", *init_code(method.fields)]
    return lines


def init_code(fields: dict[str, str]) -> list[str]:
    parameters, body = ["self", "*"], []
    for name, kind in fields.items():
        python, default = PYTHON[kind]
        if kind == "table":
            parameters.append(f"{name}: {python} | None = None")
            body.append(f"        self.{name}: {python} = {{}} if {name} is None else {name}")
        else:
            parameters.append(f"{name}: {python} = {'_NO_CONTENT' if kind == 'content' else default}")
            body.append(f"        self.{name} = {name}")
    return [*listed("def __init__(", parameters, ") -> None:", 4), *body]


def layouts_of(method: Method) -> list[tuple[str, tuple[Argument, ...], list[int]]]:
    """The different layouts of a method: a suffix for their functions, the arguments, the versions."""
    groups: dict[tuple[Argument, ...], list[int]] = {}
    for version in sorted(method.layouts):
        groups.setdefault(method.layouts[version], []).append(version)
    newest = max(method.layouts)
    return [
        ("" if newest in versions else f"_{VERSION_NAMES[versions[0]]}", layout, versions)
        for layout, versions in groups.items()
    ]


def row_code(method: Method, suffix: str, layout: tuple[Argument, ...], versions: list[int]) -> list[str]:
    """The rows of _LAYOUTS for one layout: one for each id it has."""
    lines: list[str] = []
    for constant in dict.fromkeys(method.constant(version) for version in versions):
        having = [str(version) for version in versions if method.constant(version) == constant]
        functions = [f"_{verb}_{method.snake}{suffix}" if layout else "None" for verb in ("decode", "encode")]
        tag = f"({', '.join(having)}{',' if len(having) == 1 else ''})"
        items = [f"amqp.{constant}", method.python_name, *functions, tag]
        lines += tuple_row(items)
    return lines


def tuple_row(items: list[str]) -> list[str]:
    line = f"    ({', '.join(items)}),"
    if len(line) <= LINE_MAX:
        return [line]
    return ["    (", *(f"        {item}," for item in items), "    ),"]


def struct_code(formats: Iterable[str]) -> list[str]:
    return [
        f'_{letters} = Struct(">{letters}")' for letters in sorted(set(formats), key=lambda f: (len(f), f))
    ]


def methods_code(methods: list[Method]) -> str:
    classes: list[str] = []
    functions: list[str] = []
    rows: list[str] = []
    formats = ["I", "BI"]
    for method in methods:
        classes += ["", "", *class_code(method)]
        for suffix, layout, versions in layouts_of(method):
            rows += row_code(method, suffix, layout, versions)
            if not layout:
                continue
            for verb, function in (("decode", decode_function), ("encode", encode_function)):
                functions += ["", "", *function(method, f"_{verb}_{method.snake}{suffix}", layout)]
            formats += [run_format(run) for run in segments(layout) if is_fixed(run[0][0])]
    blocks = {
        "CLASSES": classes[2:],
        "STRUCTS": struct_code(formats),
        "FUNCTIONS": functions[2:],
        "ROWS": rows,
        "METHODS": [f"    {method.python_name}," for method in methods],
    }
    return fill("methods.py.txt", blocks)


# properties.py


def property_bit(place: int) -> int:
    return 0x8000 >> place


def decode_property(class_name: str, place: int, item: Argument) -> list[str]:
    what = f'"{class_name} {item.name}"'
    lines = [f"if flags & 0x{property_bit(place):04X}:"]
    if item.type == "table":
        body = [f"found.{item.name}, at = decode_table(octets, at, end, {what})"]
    elif item.type == "shortstr":
        body = [
            "stop = at + 1 + octets[at] if at < end else end + 1",
            "if stop > end:",
            f"    raise truncated({what})",
            f'found.{item.name} = octets[at + 1 : stop].decode("utf-8", "surrogateescape")',
            "at = stop",
        ]
    else:
        size = FIXED[item.type][1]
        value = "octets[at]" if size == 1 else f'int.from_bytes(octets[at : at + {size}], "big")'
        body = [
            f"if at + {size} > end:" if size > 1 else "if at >= end:",
            f"    raise truncated({what})",
            f"found.{item.name} = {value}",
            f"at += {size}",
        ]
    return [*lines, *(f"    {line}" for line in body)]


def encode_property(place: int, item: Argument) -> list[str]:
    value = f"found.{item.name}"
    if item.type in FIXED:
        encoded = f'_fixed("{item.name}", {value}, {FIXED[item.type][1]})'
    else:
        encoded = f"encode_{item.type}({value})"
    return [
        f"if {value} is not None:",
        f"    flags |= 0x{property_bit(place):04X}",
        f"    parts.append({encoded})",
    ]


def properties_class(name: str, number: int, items: list[Argument]) -> list[str]:
    python_name = f"{name.capitalize()}Properties"
    lines = [
        f"class {python_name}(Properties):",
        f'    """What a content header of the {name} class may carry; None is what it does not."""',
        "",
        *listed("FIELDS = (", quoted(item.name for item in items), ")", 4),
        "    __slots__ = FIELDS",
        f"    CLASS_ID = {number}",
        f"    FLAGS = 0x{sum(property_bit(place) for place in range(len(items))):04X}",
    ]
    if items:
        parameters = [f"{item.name}: {PYTHON[item.type][0]} | None = None" for item in items]
        lines += ["", *listed("def __init__(", ["self", "*", *parameters], ") -> None:", 4)]
        lines += [f"        self.{item.name} = {item.name}" for item in items]
    return lines


def properties_functions(name: str, items: list[Argument]) -> list[str]:
    python_name = f"{name.capitalize()}Properties"
    decode = [
        f"def _decode_{name}(octets: bytes, at: int, end: int, flags: int) -> tuple[{python_name}, int]:",
        f"    found = {python_name}()",
    ]
    encode = [
        f"def _encode_{name}(found: {python_name}) -> tuple[int, list[bytes]]:",
        "    flags = 0",
        "    parts: list[bytes] = []",
    ]
    for place, item in enumerate(items):
        decode += [f"    {line}" for line in decode_property(name, place, item)]
        encode += [f"    {line}" for line in encode_property(place, item)]
    return [*decode, "    return found, at", "", "", *encode, "    return flags, parts"]


def properties_code(classes: list[tuple[str, int, list[Argument]]]) -> str:
    class_lines: list[str] = []
    functions: list[str] = []
    rows: list[str] = []
    for name, number, items in classes:
        class_lines += ["", "", *properties_class(name, number, items)]
        functions += ["", "", *properties_functions(name, items)]
        rows.append(f"    {number}: ({name.capitalize()}Properties, _decode_{name}, _encode_{name}),")
    return fill("properties.py.txt", {"CLASSES": class_lines[2:], "FUNCTIONS": functions[2:], "ROWS": rows})


# amqp.py and amqp.pxd


def numbers(
    constants: list[Constant], methods: list[Method], classes: list[tuple[str, int, list[Argument]]]
) -> list[tuple[str, list[tuple[str, int, str]]]]:
    """The numbers by section: a comment, and (name, number, how it is written)."""
    by_group: dict[str, list[tuple[str, int, str]]] = {}
    for constant in constants:
        by_group.setdefault(constant.group, []).append((constant.name, constant.number, str(constant.number)))
    class_ids = {method.class_name: method.class_id for method in methods}
    class_rows = [(f"CLASS_{snake(name)}", number, str(number)) for name, number in class_ids.items()]
    codes: dict[str, tuple[int, str]] = {}
    for method in methods:
        for version in sorted(method.ids, reverse=True):
            number = method.ids[version]
            code = (method.class_id << 16) | number
            codes.setdefault(method.constant(version), (code, f"({method.class_id} << 16) | {number}"))
    basic = next(items for name, _, items in classes if name == "basic")
    flags = [(property_bit(place), item.name) for place, item in enumerate(basic)]
    return [
        ("Versions of the protocol.", by_group["version"]),
        ("Frame types, and the octet that ends a frame.", by_group["frame"]),
        ("Sizes and limits.", by_group["limit"]),
        ("Reply codes.", by_group["reply"]),
        ("Flags in the replies of distributed transactions.", by_group["xa"]),
        ("Classes.", class_rows),
        ("Methods: class id and method id as one number.", [(name, *code) for name, code in codes.items()]),
        ("Property flags of basic.", [(f"FLAG_{name.upper()}", bit, f"0x{bit:04X}") for bit, name in flags]),
    ]


def snake(name: str) -> str:
    return name.replace("-", "_").upper()


def amqp_code(sections: list[tuple[str, list[tuple[str, int, str]]]]) -> str:
    lines: list[str] = []
    for comment, rows in sections:
        lines += ["", f"# {comment}", *(f"{name} = {text}" for name, _, text in rows)]
    return fill("amqp.py.txt", {"NUMBERS": lines[1:]})


def reply_codes_code(constants: list[Constant]) -> str:
    replies = [constant for constant in constants if constant.group == "reply"]
    blocks = {
        "CODES": [f"{reply.name} = {reply.number}" for reply in replies],
        "REPLY_NAMES": [f'    {reply.name}: "{reply.name}",' for reply in replies],
        "HARD": [f"        {reply.name}," for reply in replies if reply.closes == "connection"],
    }
    return fill("reply_codes.py.txt", blocks)


def amqp_pxd(sections: list[tuple[str, list[tuple[str, int, str]]]]) -> str:
    lines: list[str] = []
    for comment, rows in sections:
        lines += ["", f"    # {comment}", *(f"    {name} = {text}" for name, _, text in rows)]
    return fill("amqp.pxd.txt", {"NUMBERS": lines[1:]})


# The command


def fill(template: str, blocks: dict[str, list[str]]) -> str:
    """The template with each marker line replaced by its block."""
    lines: list[str] = []
    left = dict(blocks)
    for line in (TEMPLATES / template).read_text(encoding="utf-8").splitlines():
        marker = line.strip()
        if marker.startswith("# <<"):
            lines += left.pop(marker.removeprefix("# <<").removesuffix(">>"))
        else:
            lines.append(line)
    if left:
        raise SystemExit(f"{template} has no place for {', '.join(left)}")
    return "\n".join(lines) + "\n"


def generate() -> dict[str, str]:
    """The text of each generated file, by its path in the package."""
    methods, classes, constants = read_methods(), read_properties(), read_constants()
    sections = numbers(constants, methods, classes)
    return {
        "reply_codes.py": reply_codes_code(constants),
        "wire/amqp.py": amqp_code(sections),
        "wire/amqp.pxd": amqp_pxd(sections),
        "wire/methods.py": methods_code(methods),
        "wire/properties.py": properties_code(classes),
    }


def main(arguments: list[str], report: Callable[[str], object] = sys.stderr.write) -> int:
    if arguments not in ([], ["--check"]):
        report("usage: generate_wire.py [--check]\n")
        return 2
    stale = 0
    for name, text in generate().items():
        path = PACKAGE / name
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        if arguments:
            stale = 1
            report(f"{path.relative_to(ROOT)} is not what spec/ gives: run python tools/generate_wire.py\n")
        else:
            path.write_text(text, encoding="utf-8")
    return stale


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
