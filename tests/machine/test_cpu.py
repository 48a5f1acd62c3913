from pathlib import Path

from multihead.machine import cpu

X86 = "processor\t: 0\nmodel name\t: Example 9000\nflags\t\t: fpu avx2 avx512f made_up avx\n\nprocessor\t: 1\n"
ARM = "processor\t: 0\nFeatures\t: fp asimd i8mm\n"


def test_name_and_instructions(tmp_path: Path) -> None:
    (info := tmp_path / "cpuinfo").write_text(X86)
    assert cpu.cpu_name(info) == "Example 9000"
    assert cpu.instructions(info) == ["avx", "avx2", "avx512f"]
    info.write_text(ARM)
    assert cpu.instructions(info) == ["asimd", "i8mm"]
    assert cpu.cpu_name(info)  # Arm's cpuinfo has no name: the platform's word for it


def test_without_cpuinfo(tmp_path: Path) -> None:
    assert cpu.cpu_name(tmp_path / "none")
    assert cpu.instructions(tmp_path / "none") == []
