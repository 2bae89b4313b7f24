"""The repair of each fault, as text for the checks, the workarounds, `explain` and the `.env`.

See docs/dev/nccl-facts.md, section 7.
"""

from __future__ import annotations

from dataclasses import dataclass

from preflight.model.units import capitalized


@dataclass(frozen=True, slots=True)
class Repair:
    """The repair of a fault on a machine, and the repair in a container if the two repairs differ.

    Each text is an imperative without a period at the end.
    """

    machine: str
    container: str = ""

    def where(self, contained: bool) -> str:
        """Return the repair for a container if `contained` is true, else the repair for the machine.

        If there is no text for a container, return the repair for the machine.
        """
        return (self.container if contained else "") or self.machine

    @property
    def steps(self) -> tuple[str, str]:
        """The repair on a machine and the repair in a container, as two sentences."""
        return f"On the machine: {self.machine}.", f"In a container: {self.container}."


NO_REPAIR = Repair("")
SOURCE_ENV = "`source preflight.env`"  # for a file that only a ready job gets
BEFORE_THE_JOB = f"{SOURCE_ENV} before the job"


def shm_room(gib: int = 8) -> Repair:
    """Return the repair that enlarges /dev/shm to `gib` GiB."""
    return Repair(
        f"enlarge /dev/shm with `sudo mount -o remount,size={gib}g /dev/shm`, and set the same size in /etc/fstab",
        f"start the container with `--shm-size={gib}g` or `--ipc=host` (docker, podman), or mount an emptyDir with "
        f"`medium: Memory` and `sizeLimit: {gib}Gi` at /dev/shm (Kubernetes)",
    )


IOMMU = "boot with `iommu=pt`, or turn the IOMMU off in the firmware"
ACS = (
    "turn ACS off in the firmware, or run `sudo setpci -s BRIDGE ECAP_ACS+6.w=0` after every boot for each PCIe bridge "
    "between the GPUs (`sudo lspci -vvv | grep -E '^[0-9a-f]|ACSCtl'` lists the bridges)"
)
P2P = f"{IOMMU}. {capitalized(ACS)}"
PASS_THROUGH = "the host must set ACS and ATS as the vendor's pass-through guide says"
P2P_VIRTUAL = f"ask the provider of this virtual machine for a repair: {PASS_THROUGH}"
P2P_ANYWHERE = f"{IOMMU}. Also {ACS}. In a virtual machine, {PASS_THROUGH}"
UNPROTECTED = 'NCCL settings do not protect copies without NCCL (`tensor.to("cuda:1")`, `device_map`)'
NVLINKS = "check `nvidia-smi nvlink -s` and `dmesg | grep -i xid`"
FABRIC_MANAGER = (
    "check that the Fabric Manager runs and has the driver's version (`systemctl status nvidia-fabricmanager`, "
    "/var/log/fabricmanager.log)"
)
MEMLOCK = Repair(
    "run `echo '* - memlock unlimited' | sudo tee /etc/security/limits.d/90-rdma.conf` and log in again. For Slurm, "
    "set `LimitMEMLOCK=infinity` in slurmd's unit",
    "start the container with `--ulimit memlock=-1` (docker, podman), or set `LimitMEMLOCK=infinity` in the unit of "
    "the container runtime (Kubernetes)",
)
RDMA = Repair(
    "check `ibstat` (Active, LinkUp) and `ulimit -l` (unlimited). For RoCE, `show_gids` must list an address",
    "start the container with `--device /dev/infiniband --ulimit memlock=-1` (docker, podman), or request the RDMA "
    "device plugin's resource (Kubernetes). Then check the ports with `ibstat`",
)
