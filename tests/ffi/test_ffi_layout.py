"""Our declaration of PJRT's C API against a vendor's header: every slot, struct, field and constant, by the compiler."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.ffi.helpers import build, run

# Structs that are not the arguments of a call.
PARTS = {
    "pj_named": "PJRT_NamedValue",
    "pj_program": "PJRT_Program",
    "pj_execute_options": "PJRT_ExecuteOptions",
    "pj_tiled": "PJRT_Buffer_MemoryLayout_Tiled",
    "pj_strides": "PJRT_Buffer_MemoryLayout_Strides",
    "pj_layout": "PJRT_Buffer_MemoryLayout",
    "pj_version": "PJRT_Api_Version",
}

CONSTANTS = {
    "PJ_MAJOR": "PJRT_API_MAJOR",
    "PJ_STRING": "PJRT_NamedValue_kString",
    "PJ_INT64": "PJRT_NamedValue_kInt64",
    "PJ_INT64_LIST": "PJRT_NamedValue_kInt64List",
    "PJ_FLOAT": "PJRT_NamedValue_kFloat",
    "PJ_BOOL": "PJRT_NamedValue_kBool",
    "PJ_TYPE_F32": "PJRT_Buffer_Type_F32",
    "PJ_TYPE_S32": "PJRT_Buffer_Type_S32",
    "PJ_HOST_DURING_CALL": "PJRT_HostBufferSemantics_kImmutableOnlyDuringCall",
    "PJ_HOST_UNTIL_TRANSFERRED": "PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes",
    "PJ_HOST_UNTIL_DESTROYED": "PJRT_HostBufferSemantics_kImmutableZeroCopy",
    "PJ_LAYOUT_TILED": "PJRT_Buffer_MemoryLayout_Type_Tiled",
    "PJ_LAYOUT_STRIDES": "PJRT_Buffer_MemoryLayout_Type_Strides",
}


def slots(project: Path) -> list[tuple[str, str | None]]:
    """The table as (function, its argument struct or None), in order."""
    text = (project / "ffi/pjrt_table.h").read_text()
    found = re.findall(r"(?:CALL|MAY|MUTE|SKIP)\((PJRT_\w+)(?:, (\w+))?\)", text)
    return [(name, args or None) for name, args in found]


def pairs(project: Path) -> list[tuple[str, str]]:
    """Our structs beside the vendor's."""
    calls = [(args, f"{name}_Args") for name, args in slots(project) if args is not None]
    return calls + list(PARTS.items())


def fields(preprocessed: str, struct: str) -> list[str]:
    """A struct's fields in order; those of an anonymous union count as the struct's."""
    named = re.search(rf"struct {struct} \{{(.*?)\n\}};", preprocessed, re.DOTALL)
    typedef = re.search(rf"typedef struct \{{((?:(?!typedef).)*?)\n\}} {struct};", preprocessed, re.DOTALL)
    found = named or typedef
    assert found is not None, struct
    body = re.sub(r"union \{|\};?", "", found[1])
    declarations = [d.strip() for d in body.split(";") if d.strip()]
    return ["".join(re.findall(r"\(\*(\w+)\)|(\w+)$", d)[0]) for d in declarations]


def preprocess(header: Path, flag: str, folder: Path) -> str:
    done = run("gcc", "-E", "-P", flag, str(header.parent), header, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def same(ours: str, theirs: str, what: str) -> str:
    return f'_Static_assert({ours} == {theirs}, "{what}");'


def struct_claims(ours: str, theirs: str, headers: tuple[str, str]) -> list[str]:
    names = (fields(headers[0], ours), fields(headers[1], theirs))
    assert len(names[0]) == len(names[1]), (ours, names)
    claims = [same(f"sizeof({ours})", f"sizeof({theirs})", ours)]
    for a, b in zip(*names, strict=True):
        claims.append(same(f"offsetof({ours}, {a})", f"offsetof({theirs}, {b})", f"{ours}.{a}"))
        claims.append(same(f"sizeof((({ours} *)0)->{a})", f"sizeof((({theirs} *)0)->{b})", f"{ours}.{a}"))
    return claims


@pytest.fixture(scope="module")
def headers(project: Path, vendor_include: Path) -> tuple[str, str]:
    ours = preprocess(project / "ffi/pjrt_api.h", "-I", project)
    return ours, preprocess(vendor_include / "pjrt_c_api.h", "-isystem", project)


def compile_claims(claims: list[str], project: Path, vendor_include: Path, folder: Path) -> None:
    lines = ['#include "pjrt_api.h"', "#include <pjrt_c_api.h>", *claims]
    (folder / "claims.c").write_text("\n".join(lines) + "\n")
    strict = ("-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-fsyntax-only")
    build("gcc", *strict, f"-I{project}/ffi", "-isystem", str(vendor_include), "claims.c", cwd=folder)


def test_every_slot_of_the_table(project: Path, vendor_include: Path, tmp_path: Path) -> None:
    names = [name for name, _ in slots(project)]
    claims = [same(f"offsetof(pj_api, {n})", f"offsetof(PJRT_Api, {n})", n) for n in names]

    claims.append(same("sizeof(pj_api)", "sizeof(PJRT_Api)", "the whole table"))
    claims.append(same("offsetof(pj_api, version)", "offsetof(PJRT_Api, pjrt_api_version)", "version"))

    compile_claims(claims, project, vendor_include, tmp_path)


def test_the_table_has_as_many_slots_as_the_vendors(project: Path, headers: tuple[str, str]) -> None:
    vendor = re.search(r"typedef struct PJRT_Api \{(.*?)\n\} PJRT_Api;", headers[1], re.DOTALL)

    assert vendor is not None
    assert len(slots(project)) == vendor[1].count(";") - 3  # size, extensions, version


def test_every_field_of_every_struct(
    project: Path, vendor_include: Path, headers: tuple[str, str], tmp_path: Path
) -> None:
    claims = [claim for ours, theirs in pairs(project) for claim in struct_claims(ours, theirs, headers)]

    assert len(claims) > 250
    compile_claims(claims, project, vendor_include, tmp_path)


def test_every_constant(project: Path, vendor_include: Path, tmp_path: Path) -> None:
    claims = [same(f"(int){ours}", f"(int){theirs}", ours) for ours, theirs in CONSTANTS.items()]

    compile_claims(claims, project, vendor_include, tmp_path)


def test_a_wrong_claim_is_seen(project: Path, vendor_include: Path, tmp_path: Path) -> None:
    claim = same(
        "offsetof(pj_upload_args, data)", "offsetof(struct PJRT_Client_BufferFromHostBuffer_Args, type)", "x"
    )

    with pytest.raises(AssertionError, match="static assertion failed"):
        compile_claims([claim], project, vendor_include, tmp_path)
