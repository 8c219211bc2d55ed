-- Runs in every state before the script: defines the objects of the script and the calls of its hooks.
--
-- `native` holds functions of state.rs, `given` the values of the URL and the options. Returns the functions by
-- which host.rs calls into the state. Errors that a script causes are raised at the line of its call.
local native, given = ...

local error, getmetatable, newproxy, pairs, rawget = error, getmetatable, newproxy, pairs, rawget
local select, setmetatable, tonumber, tostring, type = select, setmetatable, tonumber, tostring, type
local concat, remove, find, length = table.concat, table.remove, string.find, string.len

local function kind(...)
  return select("#", ...) == 0 and "no value" or type((...))
end

local function bad_argument(place, name, wanted, ...)
  local words = { "bad argument #", place, " to '", name, "' (", wanted, " expected, got ", kind(...), ")" }
  error(concat(words), 3)
end

-- Output must be in order with the program's own output, so the C library's streams are not used.

local function writer(put)
  return function(...)
    for place = 1, select("#", ...) do
      local value = select(place, ...)
      if type(value) ~= "string" and type(value) ~= "number" then
        bad_argument(place, "write", "string", value)
      end
    end
    put(concat({ ... }))
    return true
  end
end

local files = setmetatable({}, { __mode = "k" })

local function file(name, put)
  local write, done = writer(put), function() return true end
  local stream = newproxy(true)
  local meta = getmetatable(stream)
  meta.__index = { write = function(_, ...) return write(...) end, flush = done, setvbuf = done, close = done }
  meta.__tostring = function() return "file (" .. name .. ")" end
  files[stream] = true
  return stream
end

local stdout, stderr, write = file("stdout", native.out), file("stderr", native.err), writer(native.out)

function print(...)
  local words = { ... }
  for place = 1, select("#", ...) do
    words[place] = tostring(words[place])
  end
  native.out(concat(words, "\t") .. "\n")
end

-- Functions a script may use. Compiled code would bypass the hook that stops an endless loop.

local loaded = { wrk = true }
jit.off()

if given.trusted then
  local output, write_to, type_of, elsewhere = io.output, io.write, io.type, false
  io.stdout, io.stderr = stdout, stderr
  function io.write(...)
    return (elsewhere and write_to or write)(...)
  end
  function io.output(to)
    if to ~= nil then
      elsewhere = to ~= stdout
    end
    if not elsewhere then
      return stdout
    end
    return output(to)
  end
  function io.type(value)
    return files[value] and "file" or type_of(value)
  end
  loaded = package.loaded
else
  local function refuse(group, names)
    local prefix = group == _G and "" or group.name .. "."
    group.name = nil
    for _, name in pairs(names) do
      group[name] = function()
        error(prefix .. name .. " needs a trusted script; --trust-script allows it", 2)
      end
    end
  end

  local function nothing() end
  local load_any = load
  function load(text, name, _, ...)
    return load_any(text, name, "t", ...)
  end
  loadstring = load

  os = { name = "os", clock = os.clock, date = os.date, difftime = os.difftime, time = os.time }
  refuse(os, { "execute", "exit", "getenv", "remove", "rename", "setlocale", "tmpname" })
  io = { name = "io", stdout = stdout, stderr = stderr, write = write }
  refuse(io, { "close", "input", "lines", "open", "output", "popen", "read", "tmpfile" })
  function io.type(value)
    return files[value] and "file" or nil
  end
  debug = { name = "debug", traceback = function(text) return text end }
  refuse(debug, {
    "debug", "getfenv", "gethook", "getinfo", "getlocal", "getmetatable", "getregistry", "getupvalue", "setfenv",
    "sethook", "setlocal", "setmetatable", "setupvalue",
  })
  package = { name = "package", loaded = loaded, path = "", cpath = "", preload = {} }
  refuse(package, { "loadlib", "seeall" })
  jit = {
    version = jit.version, version_num = jit.version_num, os = jit.os, arch = jit.arch,
    on = nothing, off = nothing, flush = nothing, status = function() return false end,
  }
  string.dump = nil
  refuse(_G, { "dofile", "loadfile", "module" })
  for _, name in pairs { "_G", "bit", "coroutine", "debug", "io", "jit", "math", "os", "package", "string", "table" } do
    loaded[name] = _G[name]
  end
  function require(name)
    local found = loaded[name]
    if found == nil then
      error("require '" .. tostring(name) .. "' needs a trusted script; --trust-script allows it", 2)
    end
    return found
  end
end

-- The table `wrk`.

wrk = { scheme = given.scheme, host = given.host, port = given.port, path = given.path, method = "GET", headers = {} }
loaded.wrk = wrk
for _, header in pairs(given.headers) do
  wrk.headers[header[1]] = header[2]
end

function wrk.lookup(host, service)
  local addresses, fault = native.lookup(host, service)
  if fault then
    error(fault, 0)
  end
  return addresses
end

function wrk.connect(...)
  local answered = native.connect((...))
  if answered == nil then
    bad_argument(1, "connect", "wrk.addr", ...)
  end
  return answered
end

function wrk.resolve(host, service)
  local addresses = wrk.lookup(host, service)
  for place = #addresses, 1, -1 do
    if not wrk.connect(addresses[place]) then
      remove(addresses, place)
    end
  end
  wrk.addrs = addresses
end

function wrk.setup(thread)
  thread.addr = wrk.addrs[1]
  if type(setup) == "function" then
    setup(thread)
  end
end

function wrk.format(method, path, headers, body)
  headers, body = headers or wrk.headers, body or wrk.body
  headers.Host = headers.Host or wrk.headers.Host
  headers["Content-Length"] = body and length(body)
  local lines = { tostring(method or wrk.method) .. " " .. tostring(path or wrk.path) .. " HTTP/1.1" }
  for name, value in pairs(headers) do
    lines[#lines + 1] = tostring(name) .. ": " .. tostring(value)
  end
  lines[#lines + 1] = ""
  lines[#lines + 1] = body or ""
  return concat(lines, "\r\n")
end

function wrk.init(args)
  if not wrk.headers.Host then
    local host = wrk.host
    if find(host, ":", 1, true) then
      host = "[" .. host .. "]"
    end
    wrk.headers.Host = wrk.port and host .. ":" .. wrk.port or host
  end
  if type(init) == "function" then
    init(args)
  end
  local text = wrk.format()
  function wrk.request()
    return text
  end
end

-- Objects. They are userdata, as in the original; an unknown field evaluates to its own name there.

local behind = setmetatable({}, { __mode = "k" })

local function object(of)
  local proxy = newproxy(true)
  behind[proxy] = of
  return proxy, getmetatable(proxy)
end

-- Content of an object of this kind, or nil.
local function within(value, kind_of)
  local of = behind[value]
  return of and of.kind == kind_of and of or nil
end

local methods = {}

function methods.get(...)
  local thread = within(..., "thread") or bad_argument(1, "get", "wrk.thread", ...)
  local value, fault = thread.get((select(2, ...)))
  if fault then
    error(fault, 2)
  end
  return value
end

function methods.set(...)
  local thread = within(..., "thread") or bad_argument(1, "set", "wrk.thread", ...)
  local fault = thread.set((select(2, ...)), (select(3, ...)))
  if fault then
    error(fault, 2)
  end
end

function methods.stop(...)
  local thread = within(..., "thread") or bad_argument(1, "stop", "wrk.thread", ...)
  thread.stop()
end

local function thread_object(of)
  local proxy, meta = object(of)
  function meta.__index(_, key)
    if key == "addr" then
      return of.address()
    end
    return methods[key] or key
  end
  function meta.__newindex(_, key, value)
    if key ~= "addr" then
      error("cannot set '" .. type(value) .. "' on thread", 2)
    end
    if not of.set_address(value) then
      error("bad argument #4 to '__newindex' (wrk.addr expected, got " .. type(value) .. ")", 2)
    end
  end
  return proxy
end

local function percentile(...)
  local stats = within(..., "stats") or bad_argument(1, "percentile", "wrk.stats", ...)
  local percent = tonumber((select(2, ...))) or bad_argument(2, "percentile", "number", select(2, ...))
  return stats.percentile(percent)
end

local function stats_object(of)
  local proxy, meta = object(of)
  function meta.__index(_, key)
    if key == "percentile" then
      return percentile
    end
    return of.values[key] or key
  end
  function meta.__len()
    return of.distinct
  end
  function meta.__call(_, place)
    return of.at(tonumber(place) or 0)
  end
  return proxy
end

-- Calls from Rust. Hooks are looked up for each call, as a script may replace them while it runs.

return {
  resolve = function(host, service)
    wrk.resolve(host, service)
    return #wrk.addrs
  end,
  setup = function(thread)
    wrk.setup(thread_object(thread))
  end,
  place = function(thread)
    wrk.thread = thread_object(thread)
  end,
  init = function(args)
    wrk.init(args)
  end,
  defined = function(name)
    return type(rawget(_G, name)) == "function"
  end,
  request = function()
    local hook = request
    if type(hook) ~= "function" then
      hook = wrk.request
    end
    return hook()
  end,
  delay = function()
    return tonumber((delay())) or 0
  end,
  response = function(status, headers, body)
    response(status, headers, body)
  end,
  done = function(summary, latency, requests)
    done(summary, stats_object(latency), stats_object(requests))
  end,
}
