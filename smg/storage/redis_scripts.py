"""The scripts of redis.py, in Lua. KEYS[1] is the tenant's prefix, ARGV[1] the seconds to keep things, ARGV[2] an id.

All keys of a tenant are in one slot, so that scripts may build them from the prefix.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_COMMON = """
local prefix, ttl, id = KEYS[1], tonumber(ARGV[1]), ARGV[2]
local function conv(of) return prefix .. 'conv:' .. of end
local function keep(key) if ttl > 0 then redis.call('EXPIRE', key, ttl) end end
local function known(item)
  for _, other in ipairs(redis.call('SMEMBERS', prefix .. 'item:' .. item)) do
    local text = redis.call('HGET', conv(other) .. ':items', item)
    if text then return text end
    redis.call('SREM', prefix .. 'item:' .. item, other)
  end
end
local function keep_conv(of)
  for _, part in ipairs({'', ':meta', ':order', ':items'}) do keep(conv(of) .. part) end
end
local function append(of, first, out)
  for n = first, #ARGV, 2 do
    local item, text = ARGV[n], ARGV[n + 1]
    if not redis.call('ZSCORE', conv(of) .. ':order', item) then
      text = known(item) or text
      local place = redis.call('HINCRBY', conv(of), 'next', 1)
      redis.call('ZADD', conv(of) .. ':order', place, item)
      redis.call('HSET', conv(of) .. ':items', item, text)
      redis.call('SADD', prefix .. 'item:' .. item, of)
      keep(prefix .. 'item:' .. item)
    end
    if out then out[#out + 1] = text end
  end
  keep_conv(of)
end
local function unlink(of, item)
  redis.call('SREM', prefix .. 'item:' .. item, of)
  redis.call('HDEL', conv(of) .. ':items', item)
  return redis.call('ZREM', conv(of) .. ':order', item)
end
local function described(of)
  local created = redis.call('HGET', conv(of), 'created_at')
  if not created then return false end
  local out = {created}
  for _, word in ipairs(redis.call('HGETALL', conv(of) .. ':meta')) do out[#out + 1] = word end
  return out
end
local FIELDS = {'created_at', 'body', 'input', 'previous', 'conversation', 'lease'}
local function response(of)
  local row = redis.call('HMGET', prefix .. 'resp:' .. of, unpack(FIELDS))
  if not row[1] then return false end
  row[6] = row[6] or '0'
  return row
end
local function put_response()
  local key, of = prefix .. 'resp:' .. id, ARGV[7]
  for n, field in ipairs(FIELDS) do redis.call('HSET', key, field, ARGV[2 + n]) end
  keep(key)
  if of ~= '' and redis.call('EXISTS', conv(of)) == 1 then append(of, 9) end
end
local function runs(of)
  local lease = redis.call('HGET', prefix .. 'resp:' .. of, 'lease')
  return lease and lease ~= '0'
end
"""

SCRIPTS: Mapping[str, str] = MappingProxyType(
    {
        name: _COMMON + body
        for name, body in {
            "put_response": "put_response()",
            "replace_running": """
if not runs(id) then return 0 end
put_response()
return 1
""",
            "renew": """
local out = {}
for n = 4, #ARGV do
  if runs(ARGV[n]) then
    redis.call('HSET', prefix .. 'resp:' .. ARGV[n], 'lease', ARGV[3])
    out[#out + 1] = ARGV[n]
  end
end
return out
""",
            "response": "return response(id)",
            "delete_response": "return redis.call('DEL', prefix .. 'resp:' .. id)",
            "chain": """
local out, seen, left = {}, {}, tonumber(ARGV[3])
while id ~= '' and not seen[id] and left > 0 do
  local row = response(id)
  if not row then break end
  seen[id] = true
  left = left - 1
  table.insert(row, 1, id)
  out[#out + 1] = row
  id = row[5]
end
return out
""",
            "put_conversation": """
redis.call('HSET', conv(id), 'created_at', ARGV[3], 'next', 0)
for n = 4, #ARGV, 2 do redis.call('HSET', conv(id) .. ':meta', ARGV[n], ARGV[n + 1]) end
keep_conv(id)
""",
            "conversation": "return described(id)",
            "merge_metadata": """
if redis.call('EXISTS', conv(id)) == 0 then return false end
local meta, most = conv(id) .. ':meta', tonumber(ARGV[3])
local count = redis.call('HLEN', meta)
for n = 4, #ARGV, 2 do
  local is_there = redis.call('HEXISTS', meta, ARGV[n])
  if ARGV[n + 1] == '' then count = count - is_there else count = count + 1 - is_there end
end
if count > most then return {'many', tostring(count)} end
for n = 4, #ARGV, 2 do
  if ARGV[n + 1] == '' then redis.call('HDEL', meta, ARGV[n])
  else redis.call('HSET', meta, ARGV[n], string.sub(ARGV[n + 1], 2)) end
end
keep_conv(id)
return described(id)
""",
            "delete_conversation": """
for _, item in ipairs(redis.call('ZRANGE', conv(id) .. ':order', 0, -1)) do
  redis.call('SREM', prefix .. 'item:' .. item, id)
end
redis.call('DEL', conv(id) .. ':meta', conv(id) .. ':order', conv(id) .. ':items')
return redis.call('DEL', conv(id))
""",
            "add_items": """
if redis.call('EXISTS', conv(id)) == 0 then return {'gone'} end
for n = 3, #ARGV, 2 do
  if redis.call('ZSCORE', conv(id) .. ':order', ARGV[n]) then return {'taken', ARGV[n]} end
  if ARGV[n + 1] == '' and not known(ARGV[n]) then return {'unknown', ARGV[n]} end
end
local out = {'ok'}
append(id, 3, out)
return out
""",
            "items": """
if redis.call('EXISTS', conv(id)) == 0 then return {'gone'} end
local order, limit, newest, after = conv(id) .. ':order', tonumber(ARGV[3]), ARGV[4] == '1', ARGV[5]
local from = newest and '+inf' or '-inf'
if after ~= '' then
  local place = redis.call('ZSCORE', order, after)
  if not place then return {'unknown'} end
  from = '(' .. place
end
local ids
if newest then ids = redis.call('ZREVRANGEBYSCORE', order, from, '-inf', 'LIMIT', 0, limit)
else ids = redis.call('ZRANGEBYSCORE', order, from, '+inf', 'LIMIT', 0, limit) end
local out = {'ok'}
for _, item in ipairs(ids) do
  local text = redis.call('HGET', conv(id) .. ':items', item)
  if text then out[#out + 1] = item; out[#out + 1] = text else unlink(id, item) end
end
return out
""",
            "item": "return redis.call('HGET', conv(id) .. ':items', ARGV[3])",
            "remove_item": "return unlink(id, ARGV[3])",
        }.items()
    }
)
