-- wrk script: sends N pipelined GETs in each request.
--     wrk -t1 -c64 -d5s -s pipeline.lua http://127.0.0.1:8080/hello -- 32
-- wrk counts every answer, so its requests/s are correct; its latencies are those of whole batches.
local batch

function init(args)
  local count = tonumber(args[1]) or 32
  batch = string.rep(wrk.format("GET"), count)
end

function request()
  return batch
end
