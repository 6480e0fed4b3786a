"""llama.cpp's own HTTP server, started from Python. Takes llama-server's flag names. Ends on SIGTERM or SIGINT."""

import argparse
import os
import signal
import sys
import threading

import xllamacpp


def parse(argv):
    parser = argparse.ArgumentParser(prog="llama-server.py", description=__doc__, allow_abbrev=False)
    parser.add_argument("-m", "--model", required=True, help="GGUF file")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("-np", "--parallel", type=int, default=1, help="slots")
    parser.add_argument("-c", "--ctx-size", type=int, default=2048, help="tokens, shared by the slots")
    parser.add_argument("-t", "--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("-n", "--n-predict", type=int, default=-1)
    parser.add_argument("--alias", help="served model name; several with commas")
    parser.add_argument("--api-key", help="several with commas")
    parser.add_argument("--api-key-file", help="one key a line")
    parser.add_argument("--metrics", action="store_true")
    parser.add_argument("--slots", action="store_true")
    parser.add_argument("--no-slots", action="store_true")
    parser.add_argument("--embeddings", "--embedding", action="store_true")
    parser.add_argument("-s", "--seed", type=int)
    parser.add_argument(
        "--until-stdin-closes",
        action="store_true",
        help="end when standard input ends, so that the engine never outlives what started it (not in llama-server)",
    )
    return parser.parse_args(argv)


def params_from(args):
    params = xllamacpp.CommonParams()
    params.model.path = args.model
    params.hostnames = [args.host]
    params.port = args.port
    params.n_parallel = args.parallel
    params.n_ctx = args.ctx_size
    params.n_predict = args.n_predict
    params.cpuparams.n_threads = args.threads
    params.cpuparams_batch.n_threads = args.threads
    params.endpoint_metrics = args.metrics
    params.endpoint_slots = args.slots and not args.no_slots
    params.embedding = args.embeddings
    if args.alias:
        params.model_alias = set(args.alias.split(","))
    if args.api_key:
        params.api_keys = args.api_key.split(",")
    if args.api_key_file:
        with open(args.api_key_file, encoding="utf-8") as file:
            params.api_keys = [line.strip() for line in file if line.strip()]
    if args.seed is not None:
        params.sampling.seed = args.seed
    return params


def end_with_stdin():
    sys.stdin.buffer.read()
    os._exit(0)


def main(argv):
    args = parse(argv)
    if not os.path.exists(args.model):
        print(f"llama-server.py: no such model: {args.model}", file=sys.stderr)
        return 1
    stops = {signal.SIGTERM, signal.SIGINT}
    # Blocked before the server makes its threads, so that every thread leaves them to sigwait below.
    signal.pthread_sigmask(signal.SIG_BLOCK, stops)
    server = xllamacpp.Server(params_from(args))
    print(f"listening on {server.listening_address}", flush=True)
    if args.until_stdin_closes:
        threading.Thread(target=end_with_stdin, daemon=True).start()
    signal.sigwait(stops)
    # The server's own teardown waits for running answers; a signal means now.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
