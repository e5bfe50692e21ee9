"""What looks like a secret and is none, one a line; `\\n` is a line break. Nothing of it may be masked."""

HARMLESS = r"""
arn:aws:sqs:us-east-1:123456789012:orders-dead-letter-queue-of-the-shop-v2
arn:aws:sqs:eu-central-1:210987654321:AcmeOrdersDeadLetterQueue-1A2B3C4D5E6F7.fifo
arn:aws:sns:eu-west-1:123456789012:acme-prod-alarm-topic-Notifications-1X2Y3Z
arn:aws:sns:us-east-1:123456789012:order_events_topic_for_the_eu_2024:6442b71b-ba12-4f07-96f5-a78ce0298a9e
arn:aws:secretsmanager:us-east-1:123456789012:secret:prod/shop/database-a1B2c3
arn:aws:secretsmanager:eu-central-1:123456789012:secret:MyDatabaseSecret-AbCd12
"SecretArn": "arn:aws:secretsmanager:eu-central-1:123456789012:secret:rds!db-0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0-Xy12Zw"
"ARN": "arn:aws:secretsmanager:us-west-2:123456789012:secret:acme/staging/stripe-9fX2kQ", "Name": "acme/staging/stripe"
aws secretsmanager get-secret-value --secret-id prod/shop/db-password-v12
gcloud secrets versions access latest --secret=shop-db-password-v12
projects/123456789012/secrets/shop-db-password/versions/3
arn:aws:iam::123456789012:role/service-role/AWSLambdaBasicExecutionRole-1a2b3c4d
arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab
arn:aws:lambda:us-east-1:123456789012:function:process-token-refresh:42
arn:aws:ssm:us-east-1:123456789012:parameter/shop/prod/db_password
arn:aws:states:us-east-1:123456789012:execution:TokenRotation:0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0
arn:aws:elasticloadbalancing:us-east-1:123456789012:targetgroup/shop-api/6d0ecf831eec9f09
AKIAIOSFODNN7EXAMPLE
aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY
6442b71b-ba12-4f07-96f5-a78ce0298a9e
"sessionId":"6442b71b-ba12-4f07-96f5-a78ce0298a9e"
session_id: 6442b71b-ba12-4f07-96f5-a78ce0298a9e
Session ID = 0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0
request id 0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0
"requestId":"req_011CUYzKtd9vXSGNgVAqdrxJ"
"id":"toolu_01GCKjbCzoc1oWRnBUvWbJkP","type":"tool_use"
"id":"msg_01XFDUDYJgAACzvnptvVoYEL"
chatcmpl-9fX2kQ7bT1mN4vR8sW3yZ6cD0eF5g
commit 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b
Merge: 9f86d08 a3bf4f1
index 83db48f84ec8..bf2a1c3d4e5f 100644
git checkout 2c26b46b68ffc68ff99b453c1d30413413422d70
From 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b Mon Sep 17 00:00:00 2001
e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  empty.txt
d41d8cd98f00b204e9800998ecf8427e *empty.bin
sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
FROM python:3.12-slim@sha256:af4e85f1cac90dd3771e47292ea7c8a9830abfabbe4faa5c53f158854c2e819d
"integrity": "sha512-z0WtRGJ3pXq8bnL2F5vKd9jHs7Tg1mYcQ4uNeRxP6oBiVlSkZfDhCwMaUrJtEyGq3XvLbNp5Kd8Hs2Tg7mYcQ==",
integrity="sha384-oqVuAfXRKap7fdgcCY5uykM6+R9GqQ8K/uxy9rx7HNQlGYl1kPzQho1wx4JwY8wC"
"hashes": ["sha256:0c7e6cd3b2a19f8e7d6c5b4a3928170615243342516079889a7b6c5d4e3f2a1b"]
--hash=sha256:7a7e6cd3b2a19f8e7d6c5b4a3928170615243342516079889a7b6c5d4e3f2a1b
etag: "33a64df551425fcc55e4d42a148795d9f25f89d4"
ETag: W/"0815-Zx9kQ7bT1mN4vR8sW3yZ6cD0eF5g"
SHA256:uNiVztksCsDhcc0u9e8BrWUqC7Hk0jD4nGQkK3hGQxY github.com (RSA)
ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl ann@nas
ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABgQDf3k2Lq8Xz7Vb1Nw5Rt9Yp4Mc6Js0Gh2Ke8Ud1Ol3Ix5Qa7Tz9 ann@nas
public_key: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl
host key: SHA256:uNiVztksCsDhcc0u9e8BrWUqC7Hk0jD4nGQkK3hGQxY
-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEEVs/o5+uQbTjL3chynL4wXgUg2R9\nq9UU8I5mEovUf86QZ7kOBIjJwqnzD1omageEHWwHdBO6B+dFabmdT9POxg==\n-----END PUBLIC KEY-----
-----BEGIN CERTIFICATE-----\nMIIBszCCAVmgAwIBAgIUJ0Z9c1f3k2Lq8Xz7Vb1Nw5Rt9Yp4wCgYIKoZIzj0EAwIw\n-----END CERTIFICATE-----
-----BEGIN RSA PRIVATE KEY-----\n...\n-----END RSA PRIVATE KEY-----
grep -l "BEGIN OPENSSH PRIVATE KEY" ~/.ssh/*
if "-----BEGIN PRIVATE KEY-----" in text: raise ValueError("a key")
data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==
"data":"iVBORw0KGgoAAAANSUhEUgAAABAAAAAQCAYAAAAf8/9hAAAAAXNSR0IArs4c6QAAAARnQU1BAACxjwv8YQUAAAAJcEhZcwAADsMAAA7DAcdvqGQ="
"signature":"EqQBCkYIBRgCKkDkAa1Zx9kQ7bT1mN4vR8sW3yZ6cD0eF5gH2jK8lP4qU6wX0zA3bC5dE7fG9hI1jK3lM5nO7pQ9rS1tU3vW5xY7z"
src="data:font/woff2;base64,d09GMgABAAAAAAUkAA8AAAAACsQAAATJAAEAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
/home/ann/.ssh/id_ed25519_work
/var/run/secrets/kubernetes.io/serviceaccount/token
C:\Users\ann\AppData\Local\Temp\token-cache-2024.bin
~/.config/acme/credentials.d/prod-2024.json
tests/fixtures/password_reset_v2/test_9f86d081.py
secret: /run/secrets/db_password_v2
password_file: /etc/acme/db-password.txt
private_key = keys/deploy-2024.pem
ssl_key: /etc/ssl/private/shop2024.key
key_file=/opt/app/certs/server-2024-01.pem
token_url = https://login.acme.test/oauth2/v2.0/token
password = get_password()
password = getpass("Password: ")
password = os.environ["DB_PASSWORD_V2"]
password = os.getenv("DB_PASSWORD", "")
password = config["database"]["password2"]
password = self.settings.db_password_v2
password: str = Field(min_length=8, max_length=128)
password = input("Enter password for user42: ")
const password = process.env.DB_PASSWORD2 || "";
const token = await getToken(user2.id, { ttl: 3600 });
let apiKey = localStorage.getItem("apiKey2");
token = jwt.encode({"sub": user2.id}, key, algorithm="HS256")
token = secrets.token_urlsafe(32)
api_key = settings.api_keys[0].value
apiKey: import.meta.env.VITE_API_KEY_2,
api_key=os.environ.get("ANTHROPIC_API_KEY2")
secret = client.access_secret_version(name=f"projects/{p}/secrets/{s2}")
secret = hashlib.sha256(value.encode()).hexdigest()
SECRET_KEY = env("DJANGO_SECRET_KEY2")
password_hash = bcrypt.hashpw(password.encode(), bcrypt.gensalt(12))
assert check_password(user2, "password") is False
def test_password_is_hashed_with_argon2id(): ...
user.setPassword(passwordEncoder.encode(dto.getPassword()));
props.setProperty("password", System.getenv("DB_PASSWORD2"));
DriverManager.getConnection(url, user, password);
requests.get(url, auth=("user", "pass"))
requests.post(url, auth=(client_id, client_secret))
smtp.login(settings.smtp_user, settings.smtp_password2)
mysqli_connect("localhost", "root", "", "shop2024");
new NetworkCredential("username", "password")
connect("db.internal", 5432, "shop_2024_v2")
login("ann@acme.test", "https://h2.acme.test/v2")
if (token.type === TokenType.Identifier2) return;
for token in tokens[1:-1]: print(token.text2)
tokenizer = AutoTokenizer.from_pretrained("bert-base-uncased-v2")
"input_tokens":12345678,"cache_creation_input_tokens":87654321
max_tokens: 128000
token_count=1048576 tokens_per_second=98.7654321
token budget: 200000 tokens
"stop_token_ids": [128001, 128009]
bos_token: <|begin_of_text|>
pad_token = "[PAD]"
cl100k_base tokens and o200k_base tokens
primary_key=True, unique=True
partition_key: tenant42#order2024
sort_key = "2024-01-02T03:04:05Z#a1b2c3"
cache_key = f"user:{user_id}:v2"
CACHE_KEY=user:42:profile:v2
cache_key: npm-9f86d081884c7d659a2feaa0c55ad015
key: node-modules-linux-9f86d081884c7d65
key: ${{ runner.os }}-pip-${{ hashFiles('requirements.txt') }}
restore-keys: linux-node20-9f86d081
foreign_key: orders_user_id_fk2
idempotency_key: 0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0
Idempotency-Key: 0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0
public key: 04a34b99f22c790c4e36b2b3c2c35a36db06226e41c692fc82b8b56ac1c540c5bd
publishable_key: see the dashboard
nextPageToken: CAUQAA1b2c3d4
"NextToken": "page2-of-orders-2024"
continuation_token=eyJwIjoyfQ2
object key: uploads/2024/01/photo-1a2b3c4d.png
s3_key = "exports/2024-01-02/part-00001.parquet"
routing_key: orders.created.v2
hash key: a1b2c3d4e5f6
shortcut key: ctrl+shift+p2
KEY `idx_orders_2024` (`created_at`)
PRIMARY KEY (`id`), KEY `user_id_2` (`user_id`)
password: <your-password-here>
password: your_password_123
password: ********
Password: ••••••••••••
password = "changeme123"
password: example-password-1
API_KEY=<your-api-key-1>
API_KEY=your_api_key_here_123
api_key: "YOUR_API_KEY_42"
export OPENAI_API_KEY="sk-..."
OPENAI_API_KEY=sk-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
GITHUB_TOKEN=ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
token: ${GITHUB_TOKEN_2}
token: ${{ secrets.NPM_TOKEN_2 }}
token: {{ vault_token_v2 }}
password: "{{ lookup('env', 'DB_PASSWORD_2') }}"
password: !vault |
password: !Ref DbPassword2
password: !secret wifi_password_2
password: ENC(see-the-vault)
MasterUserPassword: !Sub '{{resolve:secretsmanager:${Secret2}:SecretString:password}}'
{{resolve:ssm-secure:/shop/prod/db_password:1}}
valueFrom: {secretKeyRef: {name: shop-db-v2, key: password}}
secretName: shop-tls-x7k2p
imagePullSecrets: [{name: regcred-2024}]
existingSecret: shop-postgresql-2024
- name: DB_PASSWORD\n  valueFrom:\n    secretKeyRef:\n      name: shop-db-x7k2p\n      key: password
name: password-reset-service-v2\nvalue: true
postgres://user:password@localhost:5432/shop
postgresql://USER:PASSWORD@HOST:5432/DB
postgres://${DB_USER}:${DB_PASS}@${DB_HOST}/shop2
mysql://{user}:{password}@{host}/db2
redis://localhost:6379/0
amqp://guest@rabbit:5672/vhost2
mongodb://mongo1:27017,mongo2:27017/shop?replicaSet=rs0
https://acme.test:8443/path/@scope/package@1.2.3
http://localhost:3000/users/ann@acme.test
https://registry.npmjs.org/@babel/core/-/core-7.24.0.tgz
git@github.com:acme/shop.git
ssh://git@github.com:22/acme/shop.git
https://cdn.acme.test/lib.js?v=9f86d081884c7d659a2f
https://acme.test/search?q=token&page=2&sort=created_at
https://youtu.be/dQw4w9WgXcQ?si=Zx9kQ7bT1mN4vR8s
https://docs.google.com/document/d/1BxiMVs0XRA5nFMdKvBdBZjgmUUqptlbs74OgvE2upms/edit
https://acme.atlassian.net/browse/SHOP-1234?focusedCommentId=56789012
https://github.com/acme/shop/commit/9f86d081884c7d659a2feaa0c55ad015a3bf4f1b
https://hooks.slack.com/services/T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX
https://user:pass@example.com/
Authorization: Bearer <token>
Authorization: Bearer ${TOKEN_2}
Authorization: Bearer $(gcloud auth print-access-token)
headers={"Authorization": f"Bearer {self.token2}"}
Authorization: Basic realm="Access to the staging site"
WWW-Authenticate: Bearer realm="acme", error="invalid_token"
eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9lIiwiaWF0IjoxNTE2MjM5MDIyfQ.SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c
Cookie: theme=dark; lang=en-GB; _ga=GA1.2.1234567890.1700000000
Set-Cookie: locale=de-DE; Path=/; Max-Age=31536000
curl -b cookies.txt -c cookies.txt https://acme.test
curl -u "$USER:$PASS" https://acme.test
curl -H "X-Api-Key: $API_KEY2" https://acme.test
mysql -u root -p shop2024 < dump.sql
mysql -u root -p"$MYSQL_PASSWORD" shop
docker login -u ann --password-stdin registry.acme.test
docker run -p 127.0.0.1:8080:80 --name pass2 nginx
psql -h db.internal -p 5432 -U app2 shop
ssh -p 2222 -i ~/.ssh/id_ed25519 ann@nas
unzip -P "$ZIP_PASSWORD" backup2.zip
echo "$PASSWORD" | sudo -S apt update
echo "$TOKEN2" | docker login --username ann --password-stdin
the password must have 12 characters, 1 digit and 1 of !@#$%
The password is wrong 3 times out of 10.
the token is expired since 2024-01-02T03:04:05Z
The API key is stored in vault2, ask ops.
das Passwort ist seit 2024 abgelaufen
Passwort: siehe Tresor 3
Passwort vergessen? Hier klicken (Ticket 4711-0815)
le mot de passe est dans le coffre 42
Mot de passe : voir KeePass
la contraseña es la misma de 2023
Contraseña: ver la bóveda
secret santa 2024: draw names on 12-01
credentials: same-origin
login: ann / role: admin
Token-Ring network from 1985, token bucket of 100 req/s
pass: 42 tests, fail: 0
PASS src/components/Login2.test.tsx (5.678 s)
--- PASS: TestTokenRefresh (0.42s)
first pass: 3.2s, second pass: 1.1s
keyboard layout: de-latin1-nodeadkeys
serial number: C02XK1ABJGH5
MAC 00:1a:2b:3c:4d:5e and IPv6 2001:0db8:85a3::8a2e:0370:7334
src/auth/login.ts:1234:12:error:TS2304
localhost:5432:shop:app:*
2026-01-02T03:04:05.678Z INFO request 0f1e2d3c4b5a6978 took 12ms
trace_id=4bf92f3577b34da6a3ce929d0e0e4736 span_id=00f067aa0ba902b7
traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
ObjectId("507f1f77bcf86cd799439011")
shop-api-6f7b9c8d5-x7k2p   1/1   Running   0   3d
i-0abcd1234ef567890 subnet-0f1e2d3c4b5a69788 ami-0123456789abcdef0
QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWKPbdG
bc1qar0srrr7xfkvy5l643lydnw9re59gtzzwf5mdq
0x742d35Cc6634C0532925a3b844Bc454e4438f44e
tx 0x5c504ed432cb51138bcf09aa5e8a410dd4a1e204ef84bfed1be16dfba1b22060
| Token | Count |\n|---|---|\n| identifier2 | 1234 |
| Key | Value |\n|---|---|\n| colour2024 | dark-red-17 |
| Password policy | min 12, max 64 |
<password>your-password</password>
<input type="password" name="password2" id="pw2" autocomplete="new-password">
<label for="password2">Password:</label>
.password-field-2 { width: 120px; }
i18n.t("login.password.label2")
"login.password": "Password",\n"login.password.hint": "At least 12 characters"
enum Token { Plus, Minus, Number2 }
class PasswordHasherV2: pass
import { TokenService2 } from "./token.service2";
from app.secrets import load_secrets_v2
CREATE TABLE password_resets_2024 (token varchar(255));
| password | string(8..64) |
SELECT token, created_at FROM tokens WHERE id = 42;
ALTER USER app WITH PASSWORD :'password2';
CREATE USER app IDENTIFIED BY '${DB_PASSWORD2}';
terraform import aws_secretsmanager_secret.db2 shop-db
variable "db_password" {\n  type      = string\n  sensitive = true\n}
license: Apache-2.0
License key: see the e-mail of 2024-01-02
ISBN 978-3-16-148410-0
DE89 3704 0044 0532 0130 00
seed: 42, random_state=1337
np.random.seed(20240102)
recovery codes are shown once; store all 10 of them
backup codes: see settings page 2
the seed words are twelve common words that the wallet shows only once and never again
[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31]
v1.2.3-beta.4+build.20240102.9f86d08
npm ERR! code E401 Unable to authenticate, need: Basic realm="acme2"
remote: Invalid username or token. Password authentication is not supported since 2021-08-13.
WIFI:S:guest;T:nopass;;
otpauth://totp/Acme:ann?issuer=Acme
key-value-store-2024-eu, secret-sharing-2of3, token-bucket-v2
ghp_ tokens begin so, sk-ant- keys and xoxb- tokens, too
docker run --env-file .env.prod2 -e DB_PASSWORD shop
kubectl create secret generic db --from-env-file=.env.prod2
kubectl get secret shop-db-x7k2p -o jsonpath='{.data.password}' | base64 -d
op read "op://shop/db/password2"
bw get password 0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0
vault kv get -field=password2 secret/shop/db
pass show shop/db-2024
password-store/shop/db-2024.gpg
sops -d secrets/prod-2024.enc.yaml
ENC[AES256_GCM,data:p673w==,iv:YY=,aad:UQ=,tag:A=]
the password (for prod) is required
the password (for prod) is stored in vault2
changed the password to something longer
change the password to at least 12 characters with 2 digits
reset the password to the default of the vendor
the password was reset on 2024-01-02T03:04:05Z by user42
password changed from 8 to 12 characters in v2.3.1
the password has been changed to meet policy NIST-800-63B
set the password policy to NIST-800-63B
set the token to null2 when user42 logs out
rotated the secret to prod/shop-db-v2 in the store
switched the token from HS256 to RS256
changed the password hash from sha256-crypt to argon2id-v13
moved the password to keepass2-db.kdbx
the password for user42 is wrong 3 times out of 10
the password for the nas is in 1Password
password — at least 12 characters, 2 digits
Password - see ticket 4711-0815b
the API key (staging) is in AWS-SecretsManager2
use the password from .env.prod2 for now
log in with password authentication2
비밀번호는 8자 이상이어야 합니다
비밀번호는 영문과 숫자 2가지를 포함해야 합니다
비밀번호: 입력하세요
데이터베이스 비밀번호는 금고2에 있습니다
비밀번호를 변경했습니다 (2024-01-02)
암호는 AES256으로 저장됩니다
пароль от базы: потерян
пароль от базы: см. хранилище 2
пароль — это строка из 12 символов
пароль должен содержать 12 символов, 1 цифру
Пароль изменён 2024-01-02 в 03:04:05
сменил пароль на более длинный
пароль от сервера лежит в vault2
пароль для пользователя user42 не найден
токен истёк 2024-01-02T03:04:05Z
пароль від бази: у сховищі 2
пароль має містити 12 символів і 1 цифру
a senha do banco é obrigatória
a senha deve ter 8 caracteres e 1 número
a senha do banco está no cofre2
mudei a senha para uma mais longa
hasło do bazy to tajemnica
hasło musi mieć 12 znaków i 1 cyfrę
hasło do bazy: w sejfie 2
zmieniłem hasło na dłuższe
数据库密码为必填项
密码是必填的，长度为8到20位
密码长度为 12
密码已过期，请在 2024-01-02 前修改
令牌为 JWT 格式，密钥为 RSA2048
密码: 请输入8位以上
パスワードは8文字以上です
パスワードは数字1文字以上を含めてください
パスワードは bcrypt2 でハッシュされます
トークンは2024-01-02に期限切れです
la password è obbligatoria, almeno 8 caratteri
la password del database è nel vault2
ho cambiato la password in una più lunga
het wachtwoord is verplicht, minimaal 8 tekens en 1 cijfer
het wachtwoord van de database is te vinden in kluis2
şifre: en az 8 karakter, 1 rakam
şifre veritabanında saklanır (bcrypt2)
şifreleme: AES256-GCM
şifreyi değiştirdim, 2024-01-02
heslo: viz trezor 2
heslo k databázi je v trezoru2
heslo musí mít 12 znaků a 1 číslici
jelszó: lásd a széf 2
a jelszó legalább 8 karakter, 1 számmal
das Passwort (für prod) lautet wie im Tresor 3
habe das Passwort auf mindestens 12 Zeichen geändert
das Passwort auf dem nas2 ist abgelaufen
le mot de passe (prod) est dans le coffre 42
j'ai changé le mot de passe en 2024
la contraseña (de prod) es obligatoria, mínimo 8
lösenordet är minst 12 tecken
adgangskoden er udløbet 2024-01-02
passordet er lagret i hvelv2
salasana on vanhentunut 2024-01-02
snmpget -v2c -c public 10.0.0.1 sysDescr.0
openssl enc -k: the passphrase, this option is for old versions
openssl enc -aes-256-cbc -k "$PASSPHRASE2" -in a
net use [devicename | *] [\\\\computername\\share2 [password | *]] [/USER:[domainname2]username]
net use Z: \\\\10.0.0.7\\share /user:ann *
mc alias set ALIAS2 URL2 ACCESSKEY SECRETKEY
rabbitmqctl add_user USERNAME2 PASSWORD
lftp -u ann,$PASS2 files.acme.test
psexec -u ann2 -p $env:PASS2 cmd
new PDO($dsn, $user2, $password2)
echo "$WG_KEY2" | wg pubkey
pk_live_ and pk_test_ begin keys that pages show
BORG_PASSPHRASE="enter the passphrase of the repository"
PASSPHRASE="Passphrase does not match"
ERROR_PASSWORD="Wrong password, 3 tries left"
LABEL_PASSWORD="Passwort vergessen?"
"password": "Must have 8 characters or more, one of them a digit"
"passphrase": "Ask user42 for it"
password: "see vault2 entry 17"
--password "Use the one of user42"
"secret": "the shared secret of host2"
export PASSWORD_PROMPT="Type your password2 again"
help="passphrase for the key, at least 12 chars"
--passphrase 'from the file key2.txt'
"password": "sha256 of the utf8 bytes"
"passphrase": "minimum 20 characters"
text,token_count\nhello42world,1234567890
token,count\nidentifier2x3,12\nhello42world,7
id,token_type,password_changed_at\n1,Bearer2b,2024-01-02T03:04:05Z
user,password_hash_algorithm\nann,argon2id-v13
name,primary_key,rows\norders2024x,order_id2,12
file,password\nlogin2.py,12 matches\nuser2.py,3 matches
Enter user, password\nthen press key42xyz, done
pass,fail,skip\n42,3,1
test,pass,secs\nTestParser2,yes,1.5
id | password_reset_at\n---+------\n 1 | 2024-01-02T03:04:05
column,secret_name\ndb,prod/shop-db-v2
user,password\nann,changeme123\nbob,see vault2
key,value\ncolour2024,dark-red-17
token;id;score\n128001;12;0.5
user,password\n\nThe file user42abc, which holds 12a34b56c rows, is empty.
params: user, password, token\nreturns: session42, user42abc, x1y2z3a4b5
https://acme.test/docs/reset-password/how-to-reset-your-password-2024-01
https://acme.test/reset/MyLongComponentNameForReset2024
https://docs.acme.test/magic/introduction-to-magic-links-v2
https://acme.test/verify/email-address-confirmation-step-2
https://api.acme.test/orders/confirm/6442b71b-ba12-4f07-96f5-a78ce0298a9e
GET /api/v1/password/policy/minimum-length-12 200
GET /reset-password/[token] 200
https://acme.test/reset-password/{token}?email={email}
https://acme.test/reset-password/${resetToken2}
https://acme.test/reset-password/YOUR_RESET_TOKEN_HERE_123
path('reset/<uidb64>/<token>/', views.PasswordResetConfirmView.as_view())
Route::get('/reset-password/{token}', [NewPasswordController::class, 'create'])
https://cdn.acme.test/password/9f86d081884c7d659a2f.js
https://cdn.acme.test/static/reset/normalize-8.0.1.min.css
https://github.com/acme/reset/commits/release-2024-01-02-v2
https://github.com/acme/magic-tools/blob/main/src/utils2024.py
https://github.com/vimeo/password-lib/tree/feature-2fa-support-v2
src/password/reset/9f86d081884c7d659a2feaa0c55ad015
https://acme.test/?otp=123456
https://acme.test/auth/action?mode=resetPassword&oobCode=CODE
https://acme.test/login?magic=true&next=home
pa-system-design-document-for-the-release-of-2024-in-two-parts
pa-System-Design-Document-for-the-Release-2024-Final-Version2
us-east-pa-0123456789012345678901234567890123456789
http://192.168.1.20/api/<username>/lights
http://192.168.1.20/api/your-hue-username-goes-here-in-this-place-x/lights
/api/some-very-long-service-name-for-orders-v2/config
"username": "a-very-long-user-name-of-forty-chars-2024"
xapp- tokens and z-app- tokens begin so
curl -sSLo out.tar.gz https://acme.test/a-2024.tar.gz
curl -sSLu "$USER2:$PASS2" https://acme.test
curl -sSLu ann: https://acme.test
rsync -avu nas:backup2024/x9 /data
docker run -itu 1000:1000 nginx2
wg pubkey <<< "$PRIVATE_KEY2"
wg pubkey < private2.key
openssl passwd -6 -stdin
openssl passwd -6 -in password2.txt
openssl passwd -6 "$PASSWORD2"
openssl passwd -6 -salt a1B2c3D4 "$PW"
openssl dgst -sha256 -hmac "$SECRET2" file2.txt
openssl dgst -sha256 -verify pub2.pem -signature a2.sig file
openssl enc -aes-256-cbc -K "$KEY2" -iv "$IV2"
openssl enc -aes-256-cbc -K $(cat key2.hex) -iv 00
openssl enc -aes-256-cbc -salt -in a2b3c4.txt -out b2.enc
net user ann * /add
net user administrator /active:yes
net user ann %PASSWORD2%
the net user base grew2024 by 12.5%
net user interface version2
net localgroup administrators ann2 /add
snmpget -v3 -u ann -l authPriv -a SHA -A "$AUTH2" -x AES -X "$PRIV2" 10.0.0.1
snmptrapd -f -A -Lf /var/log/snmp2.log
net use Z: \\10.0.0.7\share2 /persistent:yes
net use Z: \\disk\share2024 /user:ann
net use \\10.0.0.7\IPC$ /user:me *
net use Z: \\disk\team2 /user:CORP\ann /persistent:no
net use Z: /delete
użytkownik,hasło,uwagi\nann,brak,stary2
логин,пароль\nann,см. хранилище 2
用户名,密码\nann,见保险库2
пароль должен содержать 12 символов, 1 цифру\nи знак42x
AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEB
oobCode: the code from the mail2
https://acme.test/login/oauth2/code/github-enterprise-2024-v2
https://acme.test/login/550e8400-e29b-41d4-a716-446655440000
https://acme.test/sign-in/MyLongComponentNameForSignIn2024
username: a-very-long-user-name-of-forty-chars-2024
username=AnnMarieOfTheAcmeShopTeamInBerlin2024ABC
createUser me SHA AUTHPASS AES PRIVPASS
createUser(name, "SHA256digest2")
wg set wg0 private-key <(echo "$KEY2")
wg set wg0 private-key /etc/wireguard/private2.key
http://10.0.0.5/api/0123456789012345678901234567890123456789
curl https://acme.test/a2b3c4\n  rsync -avu nas:backup2024/x9
服务,令牌数\nci,1234567890123456
имя,токен\nann,см. хранилище номер 2
| Service | API 密钥 |\n|---|---|\n| ci | 见保险库2 |
password = get(x)
password = getpass.getpass(prompt)
if password < 8: raise
def login(user, password: str, again: bool): ...
password: Optional[SecretStr] = None
password = Field(min_length=8, max_length=128)
password = models.CharField(max_length=128,
secret: Option<[u8; 32]>, token: Vec<u8>
password = base64.b64encode(sha256(value)).decode()
my $pass = $assert->{pass};
{password:e.password,token:t.token}
password: this.form.get('password')?.value,
password=%(password)s user=%(user)s
set PASSWORD=%DB_PASSWORD%
password: "{{ lookup('env', 'DB_PASSWORD') }}"
password: {{ .Values.database.password }}
password: {{.Values.database.password}}
password: ${DB_PASSWORD:-none}
password: <your-own-password>
password = f"{user.name}-{suffix}"
password = "{}:{}".format(user, word)
password = "<%= ENV.fetch(:password) %>"
PASSWORD=$(cat /run/secrets/db)
password="$DB_PASSWORD"
postgres://{user}:{password}@{host}/db and postgres://%s:%s@%s/db
"password": "Must be 8 characters or more, one of them a digit"
"password": "^(?=.*[a-z])(?=.*[0-9]).{8,}$"
"secret": "{\"user\": \"ann\", \"port\": 5432}"
print("password:", name, "is wrong")
passphrase: &lt;string&gt;
env:\n  - name: DB_HOST\n    value: nas-17.local.example\n
env:\n  - name: DB_PASSWORD\n    valueFrom: secretKeyRef\n
{"key": "color", "value": "dark-red-17"}
## Passwords\n\nAuthentication\n
variable "region" {\n  default = "eu-central-17"\n}\nvariable "db_password" {}\n
def f(name='key', value=17): ...\n
[{"name": "password"}, {"name": "region", "value": "eu-central-17"}]
- name: DB_PASSWORD\n- name: DB_HOST\n  value: nas-17.local\n
<a name="password"/><b name="region" value="eu-central-17"/>
<string name="password">Kennwort eingeben</string>
password:\nhost:\n  value: nas-17.local\n
authorization:\n  v1alpha2:\n
## API keys\n[the-17-keys](https://h.test/17)\n
password: SecretStr = Field(...)
password = PasswordField(label='x')
secret: ClientSecretCredential
let it pass: 12 tests, 3 files
pass=0, fail=0
<Token>{token}</Token>
mysql -u root -p shop < dump.sql
docker run -p8080:8080 mysql
docker run --user 1000000:1000000 --user www-data:www-data alpine
api_key = base64Encode(utf8Decoder)
if (pass === "test") return;
autocomplete: "currentPassword", password: newPassword
docker run -d --name mongo -p 27017:27017 mongo:7
docker run --name mongo -p 127.0.0.1:27017:27017/tcp mongo
mongosh --host db -p --authenticationDatabase admin
mongosh --password $MONGO_PASSWORD
docker compose up mongo -p shopproject
docker compose exec mongo mkdir -p /data/db
docker compose -f mongodb.yaml up mongodb -p shopproject
redis-cli -h cache -p 6379 ping
PASS: testcase1
--- PASS: TestParser_9f86d081884c (0.01s)
Second pass: rewriting
low-pass: butterworth2
private key: id_ed25519_work
private_key = id_rsa.2024-11
signing key: release2024-11.pem
tests/test_9f86d081884c7d659a2feaa0c55ad015.py
tests/test_9f86d081884c7d659a2feaa0c55ad015a3bf4f1b.py live_9f86d081884c7d659a2feaa0c55ad015
restored from linux-key-9f86d081884c7d659a2feaa0c55ad015
cache/key-9f86d081884c7d659a2feaa0c55ad015.bin
out/9f86d081884c7d659a2feaa0c55ad015-3d4b3a2a-1c2d3e4f.png
the api key is required, and the access key: optional
an access key is a constraint of two columns
{"auth": "c29tZXRoaW5nIGVsc2U="}
{"auth": "authenticated"}
hf_hub_download and hf_transformers_pipeline_for_sequences
pul-request test_case_that_is_long_enough_to_be_a_hash secret_manager_client_of_the_second_region_here
image@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
trace 4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
6f1c9e0b-7a42-4c1d-9e0b-5f1c9e0b7a42 api-6f1c9e0b-7a42
password: str
def login(user: str, password: str = None) -> Token:
token = request.headers["Authorization"]
token = generate_token(user_id, expires=3600)
const apiKey = process.env.OPENAI_API_KEY;
api_key=os.environ["ANTHROPIC_API_KEY"]
export GITHUB_TOKEN=$(gh auth token)
export API_TOKEN=${CI_TOKEN}
password: "${DB_PASSWORD}"
password = "your-password-here"
API_KEY=<your api key>
"input_tokens": 12345678, "cache_read_input_tokens": 61608000
max_tokens=1024000000 tokenizer = AutoTokenizer.from_pretrained
secret_key_base: Rails.application.credentials.secret_key_base
The password must be at least twelve characters long.
<input type="password" name="password" placeholder="Password">
postgres://user:password@localhost:5432/db
https://example.com/path?page=2
git@github.com:acme/api.git
-----BEGIN CERTIFICATE-----
look for the line -----BEGIN RSA PRIVATE KEY----- in the file
task-management-system-overview-2024 and risk-assessment-report-of-last-year
SecretManager.accessSecretVersion(projects/foo/secrets/bar)
NotificationSettingsManager.shared.presentTheOnboardingController
token: csrfToken, authorization: true, passwordResetTokenExpiry: Date
commit 3f786850e387550fdab836ed7e6dc881de23001b
d41d8cd98f00b204e9800998ecf8427e  file.txt
"uuid":"6442b71b-d012-4f07-96f5-a78ce0298a9e","requestId":"req_011CUYzKtd9vXSGNgVAqdrxJ"
"tool_use_id":"toolu_01GCKjbCzoc1oWRnBUvWbJkP","signature":"EqQBCkYIBRgCKkDkAa="
Return with login / password\n    login_identifier
password: _PasswordType | None = None
docker run -u 1000:1000 --user 1001 image
secretKeyRef: {name: db, key: password}
token_url = https://auth.test/oauth/token
Bearer authentication-is-required-for-this-endpoint
sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
password_hash = bcrypt.hashpw(password.encode(), salt)
credentials: 'include'
authorization: 'Bearer ' + token
"""


def harmless() -> list[str]:
    """Each as it is written."""
    return [line.replace("\\n", "\n") for line in HARMLESS.strip().split("\n")]
