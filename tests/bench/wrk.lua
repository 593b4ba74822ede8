-- One call after the other on each connection; the body may have a %s, which gets a fresh idempotency key.
-- wrk runs this in C threads: it costs a small part of what it measures.

local threads = 0

function setup(thread)
  thread:set("number", threads)
  threads = threads + 1
end

function init(args)
  path, token, body, run = args[1], args[2], args[3], args[4]
  counter = 0
  headers = { ["Authorization"] = "Bearer " .. token, ["Content-Type"] = "application/json" }
end

function request()
  counter = counter + 1
  local key = run .. "-" .. number .. "-" .. counter
  return wrk.format("POST", path, headers, (body:gsub("%%s", key)))
end

function done(summary, latency, requests)
  local failed = summary.errors.status + summary.errors.connect + summary.errors.read + summary.errors.timeout
  io.write(string.format('RESULT {"calls": %d, "failed": %d, "seconds": %.6f, "p50": %.3f, "p99": %.3f}\n',
    summary.requests, failed, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3))
end
