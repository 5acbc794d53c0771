# Sees that slurmdbd's user can use its database with the password on standard input; makes both otherwise.
#   bash -euc "$(cat database.sh)" database NAME USER look|make
# The password is on no command line and in no file but slurmdbd.conf; the client reads it from its environment.
name=$1 user=$2 what=$3
IFS= read -r MYSQL_PWD
export MYSQL_PWD
if mariadb --no-defaults --user="$user" --database="$name" --execute='SELECT 1' >/dev/null 2>&1; then
    echo there
    exit 0
fi
echo missing
[ "$what" = make ] || exit 0
password=$MYSQL_PWD
unset MYSQL_PWD
mariadb --user=root <<SQL
CREATE DATABASE IF NOT EXISTS \`$name\`;
CREATE USER IF NOT EXISTS '$user'@'localhost' IDENTIFIED BY '$password';
ALTER USER '$user'@'localhost' IDENTIFIED BY '$password';
GRANT ALL ON \`$name\`.* TO '$user'@'localhost';
SQL
