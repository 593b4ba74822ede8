"""Health check of a container: `python -m computeplatform.probe URL` exits 0 when the answer is 200."""

import sys
import urllib.request


def main(url: str) -> int:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # never ask a proxy for our own process
    try:
        with opener.open(url, timeout=5) as answer:
            return 0 if answer.status == 200 else 1
    except OSError as error:
        print(f"{url}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
