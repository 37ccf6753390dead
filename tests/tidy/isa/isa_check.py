#!/usr/bin/env python3
"""Checks the instructions that compilers made of the memory orders in cco/device.

  isa_check.py shipped OBJECT...         AMD code objects: every write-back is waited for before the next
                                         store or atomic, in every function
  isa_check.py probe ARCH OBJECT         probe.cc: each primitive is the sequence its target needs
  isa_check.py control ARCH OBJECT SOFT  the checks above see a missing wait, and a soft release
  isa_check.py ptx FILE                  probe.cc as PTX
  isa_check.py sass FILE                 probe.cc as sm_90 machine code
The disassemblers are taken from $LLVM_OBJDUMP (llvm-objdump-22) and $NVDISASM (nvdisasm).
Textual: it does not follow branches, so a fence and its wait stand in one block in the headers.
"""
import os
import re
import subprocess
import sys

SKIP = 77  # CTest: the control shows a compiler without the bug.

# What each target calls its parts. `sys` and `dev` mark an access's scope.
GFX90A = dict(wb=r"buffer_wbl2", wait=r"s_waitcnt vmcnt\(0\)", load=r"global_load_dwordx2 .* glc",
              load_wait=r"s_waitcnt vmcnt\(0\)", inv=r"buffer_invl2$", inv_l1=r"buffer_wbinvl1_vol",
              store=r"global_store_dwordx2", add=r"global_atomic_add_x2",
              fetch=r"global_atomic_add_x2 .* glc", dev_wb=None, dev_store=r"global_store_dwordx2",
              dev_load=r"global_load_dwordx2 .* glc", dev_inv=r"buffer_wbinvl1_vol",
              load16="global_load_dwordx4", store16="global_store_dwordx4",
              drain=r"s_waitcnt vmcnt\(0\)")
GFX942 = dict(wb=r"buffer_wbl2 sc0 sc1", wait=r"s_waitcnt vmcnt\(0\)",
              load=r"global_load_dwordx2 .* sc0 sc1", load_wait=r"s_waitcnt vmcnt\(0\)",
              inv=r"buffer_inv sc0 sc1", inv_l1=None, store=r"global_store_dwordx2 .* sc0 sc1",
              add=r"global_atomic_add_x2 .* sc1", fetch=r"global_atomic_add_x2 .* sc0 sc1",
              dev_wb=r"buffer_wbl2 sc1", dev_store=r"global_store_dwordx2 .* sc1",
              dev_load=r"global_load_dwordx2 .* sc1", dev_inv=r"buffer_inv sc1",
              load16="global_load_dwordx4", store16="global_store_dwordx4",
              drain=r"s_waitcnt vmcnt\(0\)")
GFX1250 = dict(wb=r"global_wb scope:SCOPE_SYS", wait=r"s_wait_storecnt 0x0",
               load=r"global_load_b64 .* scope:SCOPE_SYS", load_wait=r"s_wait_loadcnt 0x0",
               inv=r"global_inv scope:SCOPE_SYS", inv_l1=None,
               store=r"global_store_b64 .* scope:SCOPE_SYS",
               add=r"global_atomic_add_u64 .* scope:SCOPE_SYS",
               fetch=r"global_atomic_add_u64 .*TH_ATOMIC_RETURN scope:SCOPE_SYS",
               dev_wb=r"global_wb scope:SCOPE_DEV", dev_store=r"global_store_b64 .* scope:SCOPE_DEV",
               dev_load=r"global_load_b64 .* scope:SCOPE_DEV", dev_inv=r"global_inv scope:SCOPE_DEV",
               load16="global_load_b128", store16="global_store_b128",
               drain=r"s_wait_storecnt 0x0",
               tensor_load=r"tensor_load_to_lds .* scope:SCOPE_SYS",
               tensor_store=r"tensor_store_from_lds .* scope:SCOPE_SYS",
               tensor_wait=r"s_wait_tensorcnt 0x0")
TARGETS = {"gfx90a": GFX90A, "gfx942": GFX942, "gfx950": GFX942, "gfx1250": GFX1250}

# Per kernel of probe.cc: what must appear, in this order, with anything in between.
SEQUENCES = {
    "store_release": ("wb", "wait", "store"),
    "add_release": ("wb", "wait", "add"),
    "fetch_add": ("wb", "wait", "fetch", "load_wait", "inv", "inv_l1"),
    "publish": ("wb", "wait", "store", "store"),
    "load_acquire": ("load", "load_wait", "inv", "inv_l1"),
    "poll_then_acquire": ("load", "load_wait", "inv", "inv_l1"),
    "store_release_gpu": ("dev_wb", "wait", "dev_store"),
    "load_acquire_gpu": ("dev_load", "load_wait", "dev_inv"),
    "put_block": ("load16",) * 4 + ("store16",) * 4,
    "put_and_signal": ("store16", "drain", "barrier", "wb", "wait", "add"),
    "meet": ("drain", "barrier", "wb", "wait", "store", "load", "load_wait", "inv"),
    "tdm_tile": ("tensor_load", "tensor_wait", "tensor_store", "tensor_wait", "wb", "wait", "add"),
}
COMMON = dict(barrier=r"s_barrier")

PTX_SEQUENCES = {
    "store_release": (r"st\.release\.sys\.global\.u64",),
    "add_release": (r"red\.release\.sys\.global\.add\.u64",),
    "fetch_add": (r"atom\.acq_rel\.sys\.global\.add\.u64",),
    "publish": (r"fence\.release\.sys", r"st\.relaxed\.sys", r"st\.relaxed\.sys"),
    "load_acquire": (r"ld\.acquire\.sys\.global\.u64",),
    "poll_then_acquire": (r"ld\.relaxed\.sys\.global\.u64", r"fence\.acquire\.sys"),
    "store_release_gpu": (r"st\.release\.gpu",),
    "load_acquire_gpu": (r"ld\.acquire\.gpu",),
    "put_block": (r"ld(\.global)?\.v4\.[bu]32",) * 4 + (r"st(\.global)?\.v4\.[bu]32",) * 4,
    "put_and_signal": (r"st(\.global)?\.v4\.[bu]32", r"bar\.sync", r"red\.release\.sys"),
    "meet": (r"bar\.sync", r"fence\.release\.sys", r"st\.relaxed\.sys", r"ld\.relaxed\.sys",
             r"fence\.acquire\.sys", r"bar\.red\.or"),
    "tdm_tile": (r"mbarrier\.init", r"fence\.proxy\.async", r"mbarrier\.arrive\.expect_tx",
                 r"cp\.async\.bulk\.shared::cluster\.global", r"mbarrier\.try_wait",
                 r"cp\.async\.bulk\.global\.shared::cta", r"cp\.async\.bulk\.commit_group",
                 r"cp\.async\.bulk\.wait_group 0", r"fence\.proxy\.async", r"red\.release\.sys"),
}
SASS_SEQUENCES = {
    "store_release": (r"MEMBAR\.\w+\.SYS", r"STG?\.E\.64\.STRONG\.SYS"),
    "add_release": (r"MEMBAR\.\w+\.SYS", r"REDG?\.E\.ADD\.64\.STRONG\.SYS"),
    "fetch_add": (r"MEMBAR\.\w+\.SYS", r"ATOMG?\.E\.ADD\.64\.STRONG\.SYS", r"CCTL\.IVALL"),
    "load_acquire": (r"LDG?\.E\.64\.STRONG\.SYS", r"CCTL\.IVALL"),
    "poll_then_acquire": (r"LDG?\.E\.64\.STRONG\.SYS", r"CCTL\.IVALL"),
    "put_block": (r"LDG?\.E\.128", r"STG?\.E\.128"),
    "meet": (r"BAR\.SYNC", r"MEMBAR\.\w+\.SYS", r"STG?\.E\.64\.STRONG\.SYS",
             r"LDG?\.E\.64\.STRONG\.SYS", r"CCTL\.IVALL", r"BAR\.RED"),
    "tdm_tile": (r"UBLKCP\.S\.G", r"SYNCS\.PHASECHK", r"UBLKCP\.G\.S", r"UTMACMDFLUSH", r"DEPBAR",
                 r"MEMBAR\.\w+\.SYS", r"REDG?\.E\.ADD\.64\.STRONG\.SYS"),
}


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def disassemble(path):
    """Function name to its instructions."""
    functions, lines = {}, None
    tool = os.environ.get("LLVM_OBJDUMP", "llvm-objdump-22")
    for line in run(tool, "-d", "--no-show-raw-insn", path).splitlines():
        header = re.match(r"[0-9a-f]+ <(.*)>:$", line)
        if header:
            lines = functions.setdefault(header.group(1), [])
        elif lines is not None and line.startswith("\t"):
            lines.append(line.split("//")[0].strip())
    return functions


def split_text(text, header):
    """Function name to its lines; `header` matches the line that begins a function."""
    functions, lines = {}, None
    for line in text.splitlines():
        begin = re.search(header, line)
        if begin:
            lines = functions.setdefault(begin.group(1), [])
        elif lines is not None:
            lines.append(line.strip())
    return functions


def missing_waits(functions):
    problems = []
    for name, lines in functions.items():
        waits_for = None
        for line in lines:
            if line.startswith("buffer_wbl2"):
                waits_for = r"vmcnt\(0\)"
            elif line.startswith("global_wb "):
                waits_for = r"s_wait_storecnt 0x0"
            elif waits_for and re.search(waits_for, line):
                waits_for = None
            elif waits_for and re.match(r"(global|flat|buffer)_(store|atomic)", line):
                problems.append(f"{name}: '{line}' before the write-back has ended ({waits_for})")
                waits_for = None
    return problems


def missing_sequences(functions, sequences):
    problems = []
    for name, sequence in sequences.items():
        if name not in functions:
            problems.append(f"{name}: not in the object")
            continue
        rest = iter(functions[name])
        for pattern in sequence:
            if not any(re.search(pattern, line) for line in rest):
                problems.append(f"{name}: no '{pattern}' in its place of {list(sequence)}")
                break
    return problems


def amd_sequences(arch):
    words = {**COMMON, **TARGETS[arch]}
    return {name: [words[part] for part in parts if words.get(part)]
            for name, parts in SEQUENCES.items()}


def control(arch, probe, soft):
    functions = disassemble(probe)
    waits = r"vmcnt\(0\)|s_wait_storecnt"
    without = {name: [line for line in lines if not re.search(waits, line)]
               for name, lines in functions.items()}
    problems = []
    if not missing_waits(without):
        problems.append("the check for waits does not see that all waits were taken out")
    unordered = {name: [line for line in lines if not re.search(r"wbl2|_wb |_inv|wbinv", line)]
                 for name, lines in functions.items()}
    seen = {problem.split(":")[0] for problem in missing_sequences(unordered, amd_sequences(arch))}
    blind = set(SEQUENCES) - seen - {"put_block"}
    if arch == "gfx90a":
        blind -= {"store_release_gpu"}  # A device release is a wait alone there.
    if blind:
        problems.append(f"the check of sequences does not see missing fences in {sorted(blind)}")
    if arch != "gfx1250" and not problems and not missing_waits(disassemble(soft)):
        print(f"{arch}: this compiler waits by itself after a release; CCO_HARD_WAITCNT may go")
        sys.exit(SKIP)
    return problems


def main(mode, *arguments):
    if mode == "shipped":
        problems = [f"{path}: {problem}" for path in arguments
                    for problem in missing_waits(disassemble(path))]
    elif mode == "probe":
        arch, path = arguments
        functions = disassemble(path)
        problems = missing_waits(functions) + missing_sequences(functions, amd_sequences(arch))
        problems += [f"{name}: uses scratch memory" for name, lines in functions.items()
                     if any(line.startswith(("scratch_", "buffer_store", "buffer_load"))
                            for line in lines)]
    elif mode == "control":
        problems = control(*arguments)
    elif mode == "ptx":
        with open(arguments[0], encoding="ascii") as file:
            functions = split_text(file.read(), r"\.entry (\w+)\(")
        problems = missing_sequences(functions, PTX_SEQUENCES)
    elif mode == "sass":
        text = run(os.environ.get("NVDISASM", "nvdisasm"), arguments[0])
        functions = split_text(text, r"^\.text\.(\w+):")
        problems = missing_sequences(functions, SASS_SEQUENCES)
        problems += [f"{name}: spills" for name, lines in functions.items()
                     if any(re.search(r"\b(LDL|STL)\b", line) for line in lines)]
    else:
        sys.exit(__doc__)
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
