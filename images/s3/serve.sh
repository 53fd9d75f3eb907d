#!/bin/sh
# SeaweedFS on one machine, with one S3 user. Only S3 listens outside the container.
set -eu
umask 077
cat > /tmp/s3.json <<JSON
{"identities": [{"name": "dmls", "actions": ["Admin", "Read", "Write", "List", "Tagging"],
  "credentials": [{"accessKey": "$AWS_ACCESS_KEY_ID", "secretKey": "$AWS_SECRET_ACCESS_KEY"}]}]}
JSON
# Sessions of trainers: each gets credentials for its run. The user dmls may assume the role, and no session.
signing_key=$(printf 'sessions %s' "$AWS_SECRET_ACCESS_KEY" | sha256sum | cut -c 1-64 | base64 -w 0)
cat > /tmp/sessions.json <<JSON
{"sts": {"tokenDuration": "1h", "maxSessionLength": "12h", "issuer": "dmls", "signingKey": "$signing_key"},
 "policy": {"defaultEffect": "Deny", "storeType": "memory"},
 "policies": [{"name": "trainer", "document": {"Version": "2012-10-17",
   "Statement": [{"Effect": "Allow", "Action": ["s3:*"], "Resource": ["*"]}]}}],
 "roles": [{"roleName": "trainer", "roleArn": "arn:aws:iam::000000000000:role/trainer",
   "attachedPolicies": ["trainer"], "trustPolicy": {"Version": "2012-10-17", "Statement": [{"Effect": "Allow",
     "Principal": {"AWS": "arn:aws:iam::000000000000:user/dmls"}, "Action": ["sts:AssumeRole"]}]}}]}
JSON
# Else SeaweedFS takes them for a second user.
unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
weed -logtostderr server -dir="${DATA_FOLDER:-/data}" -ip=127.0.0.1 -ip.bind=127.0.0.1 -disableHttp=true \
    -filer=true -filer.disableHttp=true -master.telemetry=false -volume.max=0 -master.volumeSizeLimitMB=1024 \
    -s3=true -s3.config=/tmp/s3.json -s3.ip.bind="${S3_ADDRESS:-0.0.0.0}" -s3.port="${S3_PORT:-8333}" \
    -s3.port.iceberg=0 -s3.port.lance=0 -s3.iam=true -s3.iam.readOnly=true -s3.iam.config=/tmp/sessions.json &
weed=$!
trap 'kill "$weed"' TERM INT
# By this file s3-guard asks for a restart: this container ends, and Docker starts it again.
request=${RESTART_REQUEST:-/s3-guard/restart}
rm -f "$request"
while kill -0 "$weed" 2> /dev/null; do
    if [ -e "$request" ]; then
        kill -KILL "$weed"
    fi
    sleep 1 &
    wait $! || true
done
wait "$weed"
