-- wrk script: sends N pipelined GETs in each request, with the three headers of headers.txt in addition: a short, a
-- medium and a long one.
--     wrk -t1 -c64 -d5s -s pipeline_headers.lua http://127.0.0.1:8080/hello -- 32
-- The difference to pipeline.lua shows the cost of parsing: everything else is the same.
local here = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
local batch

function init(args)
  local count = tonumber(args[1]) or 32
  for line in io.lines(here .. "headers.txt") do
    local name, value = line:match("^([^:]+): (.*)$")
    wrk.headers[name] = value
  end
  batch = string.rep(wrk.format("GET"), count)
end

function request()
  return batch
end
