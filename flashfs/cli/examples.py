"""What the help of a command ends with: lines that work as they are typed. A test types them."""

from __future__ import annotations

from flashfs.cli.help import section

#: by command; "crash replay" is a command of `crash`
EXAMPLES: dict[str, tuple[str, ...]] = {
    "flashfs": (
        "flashfs create ssd.img --size 256M",
        "mkdir mnt && flashfs mount ssd.img mnt",
        "flashfs mount --help",
    ),
    "create": (
        "flashfs create ssd.img --size 256M",
        "flashfs create large.img --preset slimftl-16g",
        "flashfs create small.img --size 64M --page-size 16k --op 0.5",
    ),
    "mount": (
        "flashfs mount ssd.img mnt",
        "flashfs mount ssd.img mnt --ftl slimftl --dram 64M",
        "flashfs mount ssd.img mnt --fault later    # for `flashfs fault mnt`",
    ),
    "umount": ("flashfs umount mnt",),
    "up": (
        "flashfs up ssd.img mnt --fs ext4",
        "flashfs up ssd.img mnt -v    # after a power cut: what the recovery did",
    ),
    "down": ("flashfs down mnt",),
    "status": ("flashfs status", "flashfs status --json"),
    "nbd": (
        "flashfs nbd ssd.img --once",
        "flashfs nbd ssd.img --run 'nbdcopy -- \"$uri\" copy.raw'",
        "flashfs nbd ssd.img --run 'qemu-img info \"$uri\"'",
    ),
    "clone": ("flashfs clone ssd.img copy.img",),
    "resize": ("flashfs resize ssd.img 250M",),
    "remap": ("flashfs remap ssd.img 1M 0 64k", "flashfs remap ssd.img 2M 1M 64k --move"),
    "upgrade": ("flashfs upgrade ssd.img",),
    "presets": ("flashfs presets", "flashfs presets slimftl-16g"),
    "ftls": ("flashfs ftls", "flashfs ftls slimftl"),
    "dump": (
        "flashfs dump ssd.img",
        "flashfs dump ssd.img lpa 0",
        "flashfs dump ssd.img blocks",
        "flashfs dump --html ssd.html ssd.img",
    ),
    "top": ("flashfs top mnt", "flashfs top mnt --once"),
    "smart": ("flashfs smart ssd.img", "flashfs smart mnt --json"),
    "fsck": ("flashfs fsck ssd.img", "flashfs fsck ssd.img --data"),
    "replay": (
        "flashfs replay zipf:ops=20k,write=0.7 --ftl pagemap,slimftl",
        "flashfs replay uniform:ops=20k --size 64M --precondition fill --out r.csv",
        "flashfs replay uniform:ops=200 --preset tiny-16 --steps steps.html",
    ),
    "plot": ("flashfs plot --list", "flashfs plot r.csv --what waf --out waf.svg"),
    "compare": ("flashfs compare slimftl --only hotcold", "flashfs compare pagemap --only hotcold --out chart.svg"),
    "sweep": (
        'printf \'source = "uniform:ops=5k"\\nsize = "64M"\\nop = [0.5, 1]\\n\' > op.toml',
        "flashfs sweep op.toml    # the results are in the folder op",
    ),
    "trace": ("flashfs trace formats", "flashfs trace info zipf:ops=20k"),
    "trace info": ("flashfs trace info zipf:ops=20k,write=0.7", "flashfs trace info zipf:ops=20k --json"),
    "trace formats": ("flashfs trace formats",),
    "trace workloads": ("flashfs trace workloads", "flashfs trace workloads zipf"),
    "reproduce": ("flashfs reproduce", "flashfs reproduce slimftl map"),
    "recovery-model": (
        "flashfs recovery-model --capacity 1T,4T,16T",
        "flashfs recovery-model --capacity 2T --ftl dftl,geckoftl --json",
    ),
    "cut": ("flashfs cut mnt", "flashfs cut mnt --at 1000    # of a mount with --fault"),
    "fault": ("flashfs fault mnt", "flashfs fault mnt fail=10 flip=20:9", "flashfs fault mnt none"),
    "new-ftl": ("flashfs new-ftl mine --python    # then: flashfs check mine:Mine",),
    "check": ("flashfs check --list", "flashfs check slimftl --only names,rules"),
    "crash": ("flashfs crash --ftl slimftl --seconds 30", "flashfs crash kill --ftl slimftl --rounds 3"),
    "crash run": (
        "flashfs crash run --ftl slimftl --tier sweep --cuts 1000",
        "flashfs crash run --ftl slimftl,dftl --seconds 30",
    ),
    "crash kill": ("flashfs crash kill --ftl slimftl --fs ext4,xfs --rounds 3",),
    "crash workload": (
        "flashfs crash workload 'echo 1 > {}/a; sync' --check 'test -s {}/a'",
        "flashfs crash workload 'cp big {}; sync' --check 'cmp big {}/big' --cuts 9",
    ),
    "crash replay": ("flashfs crash replay 'ftl=slimftl cut=5:prefix program=\"w3 w4 f t3 w3+4\"'",),
    "crash shrink": ("flashfs crash shrink 'ftl=slimftl cut=5:prefix program=\"w3 w4 f\"'",),
}


def of(command: str) -> str:
    """The end of a command's help."""
    return section("Examples", EXAMPLES[command])
