-- Each thread posts numbered forms, and the end says how many answers each thread saw.
local threads = {}

function setup(thread)
  thread:set("id", #threads + 1)
  table.insert(threads, thread)
end

function init(args)
  sent, seen = 0, 0
  wrk.headers["Content-Type"] = "application/x-www-form-urlencoded"
end

function request()
  sent = sent + 1
  return wrk.format("POST", nil, nil, string.format("thread=%d&number=%d", id, sent))
end

function response(status)
  if status < 400 then seen = seen + 1 end
end

function done(summary, latency)
  for _, thread in ipairs(threads) do
    io.write(string.format("thread %d: %d good answers\n", thread:get("id"), thread:get("seen")))
  end
  io.write(string.format("99.9 %% within %.2f ms\n", latency:percentile(99.9) / 1000))
end
