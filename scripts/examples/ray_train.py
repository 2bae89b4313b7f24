"""Check the node in a Ray actor before the training actors take its GPUs; one actor per node."""

import ray

import preflight


class Gate:
    def verdict(self) -> tuple[str, str]:
        report = preflight.check(nnodes=1)
        return report.verdict.value, report.headline


ray.init()
verdict, headline = ray.get(ray.remote(Gate).remote().verdict.remote())
print(f"{verdict}: {headline}", flush=True)
