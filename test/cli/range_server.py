#!/usr/bin/env python3
"""test/cli/range_server.py FILE [--cut N] [--stall N] [--no-range] [--status CODE] -- COMMAND...

Serves FILE on a port of its own for any path while COMMAND (run by sh, with $URL set) lasts, and
exits with its code. Ranges "bytes=N-" are honoured unless --no-range. --cut closes the first
answer after N bytes, --stall is silent after N, --status answers with a code and no file. Every request is logged in
requests.log, one a line: the path, and the range it asked for.
"""
import argparse
import http.server
import os
import re
import subprocess
import sys
import threading
import time


class Handler(http.server.BaseHTTPRequestHandler):
    options = None
    cut_left = 0

    def log_message(self, *args):
        pass

    def do_GET(self):
        asked = self.headers.get("Range")
        with open("requests.log", "a") as log:
            log.write(f"{self.path} {asked or 'whole'}\n")
        if self.options.status:
            self.send_error(self.options.status)
            return
        with open(self.options.file, "rb") as file:
            data = file.read()
        match = re.fullmatch(r"bytes=(\d+)-", asked or "")
        start = int(match.group(1)) if match and not self.options.no_range else 0
        if start >= len(data):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        body = data[start:]
        if Handler.cut_left:
            body, Handler.cut_left = body[:Handler.cut_left], 0
        stall = self.options.stall
        self.wfile.write(body[:stall] if stall else body)
        if stall:
            time.sleep(60)
        self.close_connection = True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--cut", type=int, default=0)
    parser.add_argument("--stall", type=int, default=0)
    parser.add_argument("--no-range", action="store_true")
    parser.add_argument("--status", type=int, default=0)
    split = sys.argv.index("--")
    Handler.options = parser.parse_args(sys.argv[1:split])
    Handler.cut_left = Handler.options.cut
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    env = dict(os.environ, URL=f"http://127.0.0.1:{server.server_port}")
    code = subprocess.call(["/bin/sh", "-c", " ".join(sys.argv[split + 1:])], env=env)
    server.shutdown()
    sys.stdout.flush()
    os._exit(code)  # a stalled answer is not waited for


if __name__ == "__main__":
    sys.exit(main())
