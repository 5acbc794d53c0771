# What accounting holds, as one JSON object of sacctmgr's tables. Changes nothing.
#   bash -euc "$(cat accounting.sh)" accounting CLUSTER QOS_COLUMNS ACCOUNT_COLUMNS
# A sacctmgr that says nothing because it failed is no accounting that holds nothing.
set -o pipefail
cluster=$1 qos=$2 account=$3
table() { sacctmgr -P list "$@" | python3 -c 'import json, sys; print(json.dumps(sys.stdin.read()))'; }
table_of_clusters=$(table cluster format=Cluster)
table_of_qos=$(table qos "format=Name$qos")
table_of_accounts=$(table account format=Account)
# Each with what is set there, not with what it has from the one above (wopi).
table_of_assoc=$(table assoc where "cluster=$cluster" wopi "format=Account,User,Partition$account")
printf '{"cluster": %s, "qos": %s, "account": %s, "assoc": %s}\n' \
    "$table_of_clusters" "$table_of_qos" "$table_of_accounts" "$table_of_assoc"
