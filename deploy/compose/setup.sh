#!/bin/sh
# Makes every secret of the compose file, once, into ./secrets beside it: passwords, keys, and a certificate authority for the way to the
# control planes. Nothing has a default. Remove the folder to begin anew (Redis and PostgreSQL keep the old passwords in their volumes).
set -eu
cd "$(dirname "$0")"
if [ -e secrets ]; then
  echo "setup.sh: ./secrets is there already; nothing was changed" >&2
  exit 1
fi
for tool in openssl sha256sum; do
  command -v "$tool" >/dev/null || { echo "setup.sh: needs $tool" >&2; exit 1; }
done

# Other users of this machine can't get below the folder. What is mounted into containers can be read inside them, by whatever user.
umask 077
mkdir secrets.new
trap 'rm -rf secrets.new' EXIT
cd secrets.new
mkdir -p tls/control tls/public redis

random() { openssl rand -hex 32; }
hash_of() { printf 'sha256:%s' "$(printf %s "$1" | sha256sum | cut -d' ' -f1)"; }

admin=ym_$(random) gateway=ym_$(random) metrics=ym_$(random) client=ym_$(random)
redis=$(random) postgres=$(random)
printf '%s\n' "$admin" >admin.key
printf '%s\n' "$client" >client.key
printf '%s\n' "$metrics" >metrics.key
{
  echo "YARDMASTER_ADMIN_HASH=$(hash_of "$admin")"
  echo "YARDMASTER_GATEWAY_HASH=$(hash_of "$gateway")"
  echo "YARDMASTER_METRICS_HASH=$(hash_of "$metrics")"
  echo "YARDMASTER_CLIENT_HASH=$(hash_of "$client")"
} >hashes.env
{
  echo "YARDMASTER_TOKEN=$gateway"
  echo "YARDMASTER_REDIS_URL=redis://:$redis@redis:6379/0"
} >gateway.env
echo "YARDMASTER_DATABASE_URL=postgres://yardmaster:$postgres@postgres:5432/yardmaster" >control.env
echo "REDISCLI_AUTH=$redis" >redis.env
echo "requirepass $redis" >redis/redis.conf
printf '%s' "$postgres" >postgres-password

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj "/CN=Yardmaster" \
  -addext "basicConstraints=critical,CA:TRUE" -addext "keyUsage=critical,keyCertSign" \
  -keyout ca.key -out tls/public/ca.crt 2>/dev/null
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=control" -keyout tls/control/control.key -out control.csr 2>/dev/null
echo "subjectAltName=DNS:control-a,DNS:control-b,DNS:localhost,IP:127.0.0.1" >control.ext
openssl x509 -req -in control.csr -CA tls/public/ca.crt -CAkey ca.key -CAcreateserial -days 825 -extfile control.ext \
  -out tls/control/control.crt 2>/dev/null
cp tls/public/ca.crt tls/control/ca.crt
rm -f control.csr control.ext tls/public/ca.srl

chmod 755 tls tls/control tls/public redis
chmod 444 tls/control/* tls/public/* redis/redis.conf postgres-password
cd ..
mv secrets.new secrets
trap - EXIT

cat <<'NEXT'
Made ./secrets. Next:

  docker compose up -d --build
  YARDMASTER_KEY=$(cat secrets/admin.key) docker compose exec -T -e YARDMASTER_KEY control-a /opt/yardmaster/bin/yardmaster ctl nodes enrol agent-1
  YARDMASTER_AGENT_TOKEN=THE_TOKEN docker compose --profile agent up -d --build agent-1
  curl http://127.0.0.1:8201/v1/models -H "Authorization: Bearer $(cat secrets/client.key)"
NEXT
