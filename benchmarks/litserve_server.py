"""LitServe with dynamic batching, as documented: `python -m benchmarks.litserve_server MODEL PORT`;
in a module of its own, as LitServe sends the class to another process, which imports it."""

from __future__ import annotations

import sys
from typing import Any

import litserve

from benchmarks.servers import Classifier


class ClassifierApi(litserve.LitAPI):  # type: ignore[misc]
    directory = ""

    def setup(self, device: str) -> None:
        self.classifier = Classifier(self.directory)

    def decode_request(self, request) -> str:  # type: ignore[no-untyped-def] # else FastAPI looks for it in the query
        return str(request["input"])

    def predict(self, texts: list[str]) -> list[dict[str, Any]]:
        return self.classifier(texts)

    def encode_response(self, output: dict[str, Any]) -> dict[str, Any]:
        return output


def main() -> None:
    api = ClassifierApi(max_batch_size=32, batch_timeout=0.005)
    api.directory = sys.argv[1]
    litserve.LitServer(api, accelerator="cpu").run(
        host="127.0.0.1", port=int(sys.argv[2]), log_level="error", generate_client_file=False
    )


if __name__ == "__main__":
    main()
