"""Kinds of secrets as people paste them, each a template whose value is made up when a test runs.

`«m40»` stands for 40 random characters: `m` letters and digits, `l` small letters and digits, `u` capitals and digits,
`a` letters, `h` hexadecimal, `b` base64, `s` base64 for URLs, `d` digits, `q` base32, `p` a password with marks,
`w` words of a wallet, `t` the text behind the colon; a letter alone is a form of its own (see `FORMS`). Templates
hold no values, so that scanners of secrets find none here.
"""

import base64
import json
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping

from anamnesis_tests.support.planted import ALNUM, BASE64, HEX, LOWER, UPPER, URLSAFE, Maker, Planted

ALPHABETS = {
    "m": ALNUM,
    "l": LOWER,
    "u": UPPER,
    "h": HEX,
    "b": BASE64,
    "s": URLSAFE,
    "q": "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567",
}
WALLET_WORDS = (
    "abandon ability abstract acoustic bamboo banner cactus candy cargo dawn decade denial eager earth elbow fabric "
    "famous gadget galaxy hammer harvest icon illegal jaguar jungle kangaroo ketchup ladder lawsuit machine magnet "
    "napkin nephew oblige ocean paddle panther quantum rabbit raccoon saddle salmon tackle talent umbrella unveil "
    "vacant vault wagon walnut yellow zebra"
).split()
"""Some of BIP 39."""

KINDS = r"""
# names and sentences
pw behind a name | db_pw: "«m12»"
Pw behind a name | "rootPw": "«m12»"
Password for something | Password for db: «m12»
Japanese sentence | パスワードは«m12»
Chinese sentence | 密码是«m12»
Password that begins with a sign | postgres://u:p@«m12»@db.host/x
Base64 that begins with a slash | token="/«b900»"
# clouds
AWS session token | aws_session_token = «b908»
AWS session token in JSON | {"Credentials": {"AccessKeyId": "ASIA«u16»", "SecretAccessKey": "«b40»", "SessionToken": "«b908»"}}
AWS keys of an environment | AWS_ACCESS_KEY_ID=AKIA«u16»\nAWS_SECRET_ACCESS_KEY=«b40»
AWS keys in a table | | Access key ID | Secret access key |\n|---|---|\n| AKIA«u16» | «b40» |
AWS presigned URL | https://acme.s3.amazonaws.com/a.zip?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Expires=900&X-Amz-Security-Token=«s300»&X-Amz-Signature=«h64»
AWS MWS | amzn.mws.«U»
AWS Cognito client secret | CognitoClientSecret: «l52»
SES SMTP password | SES_SMTP_PASSWORD=B«b43»
Azure client secret | AZURE_CLIENT_SECRET=«m3»8Q~«m34»
Azure Service Bus | Endpoint=sb://acme.servicebus.windows.net/;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=«b43»=
Azure Cosmos DB | AccountEndpoint=https://acme.documents.azure.com:443/;AccountKey=«b86»==;
Azure IoT Hub | HostName=acme.azure-devices.net;DeviceId=pump;SharedAccessKey=«b43»=
Azure SQL | Server=tcp:acme.database.windows.net,1433;Initial Catalog=shop;User ID=app;Password=«p16»;Encrypt=True;
Azure SAS in an environment | AZURE_STORAGE_SAS_TOKEN="?sv=2022-11-02&ss=b&srt=sco&sp=rl&se=2026-01-01T00:00:00Z&sig=«m40»%2B«m3»%3D"
Azure function key | https://acme.azurewebsites.net/api/pay?code=«s54»==
Azure DevOps token | AZURE_DEVOPS_PAT=«l52»
Azure App Configuration | Endpoint=https://acme.azconfig.io;Id=abcd-l0-s0:x;Secret=«b43»=
GCP API key | AIza«s35»
GCP refresh token | {"client_id": "1.apps.googleusercontent.com", "refresh_token": "1//0«s98»", "type": "authorized_user"}
GCP access token | ya29.«s160»
GCP HMAC | GOOG1E«u55»
Firebase in JavaScript | const firebaseConfig = { apiKey: "AIza«s35»", projectId: "acme" };
Alibaba | ALIBABA_CLOUD_ACCESS_KEY_ID=LTAI«m20»\nALIBABA_CLOUD_ACCESS_KEY_SECRET=«m30»
Tencent | TENCENTCLOUD_SECRET_ID=AKID«m32»\nTENCENTCLOUD_SECRET_KEY=«m32»
Scaleway | SCW_SECRET_KEY=«U»
Hetzner | HCLOUD_TOKEN=«m64»
Linode | LINODE_CLI_TOKEN=«h64»
Vultr | VULTR_API_KEY=«u36»
OVH | OVH_APPLICATION_SECRET=«m32»\nOVH_CONSUMER_KEY=«m32»
Cloudflare global key | X-Auth-Email: ann@acme.test\nX-Auth-Key: «h37»
Cloudflare origin CA | v1.0-«h24»-«h146»
Fastly | Fastly-Key: «s32»
Akamai | client_secret = «b43»=\naccess_token = akab-«l16»-«l16»
DigitalOcean Spaces | SPACES_SECRET=«b43»
Oracle JDBC | jdbc:oracle:thin:shop/«m14»@db.internal:1521/ORCL
IBM Cloud | IBMCLOUD_API_KEY=«s44»
# continuous integration, registries, infrastructure
GitHub refresh token | ghr_«m76»
GitHub in a remote | https://x-access-token:ghs_«m36»@github.com/acme/shop.git
.git-credentials | https://ann:«m20»@git.acme.test
GitLab runner | glrt-«s20»
GitLab job token | CI_JOB_TOKEN=glcbt-64_«s20»
GitLab deploy token | gldt-«s20»
Bitbucket app password | ATBB«m32»
CircleCI | CIRCLE_TOKEN=«h40»
Travis | travis token: «m22»
Buildkite | bkua_«h40»
Drone | DRONE_RPC_SECRET=«h32»
Jenkins token | curl -u ann:«h34» https://ci.acme.test/job/x/build
Gitea | GITEA_TOKEN=«h40»
npm legacy token | //registry.npmjs.org/:_authToken=«U»
npm auth | _auth = «L»
.pypirc | [pypi]\nusername = __token__\npassword = pypi-AgEIcHlwaS5vcmc«s120»
crates.io | cio«m32»
NuGet | <add key="ClearTextPassword" value="«m20»" />
RubyGems | :rubygems_api_key: rubygems_«h48»
Packagist | {"http-basic": {"repo.acme.test": {"username": "ann", "password": "«m32»"}}}
Maven settings | <server><id>acme</id><username>ann</username><password>«p16»</password></server>
Gradle | signing.password=«m16»\nmavenPassword=«m16»
Docker Hub organisation | dckr_oat_«s32»
Docker config | {"auths": {"registry.acme.test": {"auth": "«L»"}}}
docker login | docker login -u ann -p «m24» registry.acme.test
docker login by a pipe | echo «m24» | docker login --username ann --password-stdin
Kubernetes secret | apiVersion: v1\nkind: Secret\nmetadata:\n  name: db\ndata:\n  password: «B»\n  username: YW5u
Kubernetes stringData | kind: Secret\nstringData:\n  api-key: «m32»
Kubernetes environment | env:\n  - name: DB_PASSWORD\n    value: «m16»\n  - name: DB_HOST\n    value: db
kubectl create secret | kubectl create secret generic db --from-literal=password=«m16»
kubeconfig token | users:\n- name: admin\n  user:\n    token: «m64»
kubeconfig client key | client-key-data: «K»
Kubernetes service account | eyJhbGciOiJSUzI1NiIsImtpZCI6Ii«s20».eyJpc3MiOiJrdWJlcm5ldGVz«s600».«s342»
Helm value | helm install shop ./chart --set db.password=«m16» --set image.tag=v1
Terraform variable file | db_password = "«p16»"
Terraform variable | variable "db_password" {\n  type    = string\n  default = "«m16»"\n}
Terraform Cloud | «m14».atlasv1.«m67»
Terraform state | {"mode": "managed", "type": "random_password", "attributes": {"length": 24, "result": "«p24»"}}
Pulumi passphrase | PULUMI_CONFIG_PASSPHRASE=«p16»
Ansible inventory | web1 ansible_host=10.0.0.1 ansible_ssh_pass=«p14» ansible_user=root
Vault old token | X-Vault-Token: s.«m24»
Vault unseal key | Unseal Key 1: «b43»=\nInitial Root Token: hvs.«m24»
Vault AppRole | role_id: shop-app\nsecret_id: «U»
Consul | CONSUL_HTTP_TOKEN=«U»
Nomad | NOMAD_TOKEN=«U»
Doppler | dp.st.prd.«m43»
Infisical | st.«h24».«h32».«h32»
1Password service account | ops_eyJ«s200»
Bitwarden session | export BW_SESSION="«b86»=="
Tailscale | tskey-auth-«m16»-«m32»
ngrok | ngrok config add-authtoken «m27»_«m21»
cloudflared | cloudflared service install eyJhIjoi«b140»
Sonar | sqp_«h40»
Snyk | SNYK_TOKEN=«U»
Codecov | CODECOV_TOKEN: «U»
Artifactory | ARTIFACTORY_API_KEY=AKCp8«m68»
# payment and shops
Stripe live | sk_live_«m99»
Stripe webhook | whsec_«m32»
PayPal | PAYPAL_CLIENT_SECRET=«s80»
PayPal Braintree | access_token$production$«l16»$«h32»
Square | EAAA«s60»
Adyen | AQE«m4»hmfuXNWTK0Qc+iSS«b80»==-«b43»=-«m16»
Razorpay | rzp_live_«m14»\nRAZORPAY_KEY_SECRET=«m24»
Mollie | live_«m30»
Coinbase | COINBASE_API_SECRET=«b86»==
Binance | BINANCE_SECRET=«m64»
Shopify | shpss_«h32»
# messages and mail
Slack user | xoxp-«d12»-«d12»-«d13»-«h32»
Slack app | xapp-1-A«u10»-«d13»-«h64»
Slack cookie | xoxd-«m60»%2B«m20»%3D
Slack webhook | https://hooks.slack.com/services/T«u8»/B«u10»/«m24»
Slack signing secret | SLACK_SIGNING_SECRET=«h32»
Discord webhook | https://discord.com/api/webhooks/«d18»/«s68»
Discord client secret | DISCORD_CLIENT_SECRET=«s32»
Teams workflow webhook | https://prod-12.westeurope.logic.azure.com:443/workflows/«d12»/triggers/manual/paths/invoke?api-version=2016-06-01&sp=%2Ftriggers&sv=1.0&sig=«s43»
Teams webhook | https://acme.webhook.office.com/webhookb2/«U»@«U»/IncomingWebhook/«h32»/«U»
Google Chat webhook | https://chat.googleapis.com/v1/spaces/AAAA/messages?key=AIza«s35»&token=«s43»
Zapier webhook | https://hooks.zapier.com/hooks/catch/«d7»/«l7»/
IFTTT | https://maker.ifttt.com/trigger/door/with/key/«s22»
Mattermost webhook | https://chat.acme.test/hooks/«l26»
Telegram URL | https://api.telegram.org/bot«d10»:AA«s33»/getMe
Telegram session | TG_API_HASH=«h32»
SendGrid | SG.«s22».«s43»
Mailchimp | «h32»-us21
Mailgun | MAILGUN_API_KEY=«h32»-«h8»-«h8»
Mailjet | MJ_APIKEY_PRIVATE=«h32»
Postmark | X-Postmark-Server-Token: «U»
Brevo | xkeysib-«h64»-«m16»
Resend | re_«m8»_«m24»
SMTP capitals | SMTP_PASS=«p12»
SMTP of letters | SMTP_PASS=«a16»
SMTP URL | smtps://robot%40acme.test:«m16»@mail.acme.test:465
Gmail app password | GMAIL_APP_PASSWORD="«a4» «a4» «a4» «a4»"
Python smtplib | server.login("robot@acme.test", "«p14»")
Twilio | TWILIO_AUTH_TOKEN=«h32»
Vonage | VONAGE_API_SECRET=«m16»
Twitch | oauth:«l30»
Twitter bearer | AAAAAAAAAAAAAAAAAAAAA«m20»%3D«m60»
Twitter OAuth | TWITTER_ACCESS_TOKEN_SECRET=«m45»
Facebook | EAAG«m160»
LinkedIn | LINKEDIN_CLIENT_SECRET=WPL_AP1.«m16».«m6»==
Zoom | ZOOM_CLIENT_SECRET=«m32»
# models
OpenAI project | sk-proj-«s74»T3BlbkFJ«s74»
OpenAI admin | sk-admin-«s58»T3BlbkFJ«s58»
Anthropic admin | sk-ant-admin01-«s93»AA
Mistral | MISTRAL_API_KEY=«m32»
Cohere | CO_API_KEY=«m40»
ElevenLabs | sk_«h48»
Deepgram | DEEPGRAM_API_KEY=«h40»
Fireworks | fw_«m24»
Together | TOGETHER_API_KEY=«h64»
Weights and Biases | WANDB_API_KEY=«h40»
Kaggle | {"username":"ann","key":"«h32»"}
Replicate | r8_«m37»
Pinecone | PINECONE_API_KEY=«U»
LangSmith | lsv2_pt_«h32»_«h10»
Hugging Face by a flag | huggingface-cli login --token hf_«a34»
# monitoring and services
Datadog | DD_API_KEY=«h32»\nDD-APPLICATION-KEY: «h40»
New Relic | NRAK-«u27»
Sentry DSN | SENTRY_DSN=https://«h32»@o12345.ingest.sentry.io/4501
Sentry token | sntrys_«b160»
Grafana | glsa_«m32»_«h8»
PagerDuty | Authorization: Token token=«s20»
Opsgenie | Authorization: GenieKey «U»
Rollbar | ROLLBAR_ACCESS_TOKEN=«h32»
Honeycomb | x-honeycomb-team: «m22»
LaunchDarkly | sdk-«U»
Algolia | ALGOLIA_ADMIN_KEY=«h32»
Airtable | pat«m14».«h64»
Notion | ntn_«d11»«m35»
Asana | 1/«d16»:«h32»
Trello | https://api.trello.com/1/boards?key=«h32»&token=ATTA«h64»«h8»
Jira | ATATT3xFfGF0«s170»=«u8»
Linear | lin_api_«m40»
Figma | figd_«s40»
Dropbox | sl.B«s140»
Mapbox | sk.eyJ1IjoiYWNtZSIsImEiOiJ«s30».«s22»
Google Maps URL | https://maps.googleapis.com/maps/api/js?key=AIza«s35»&callback=init
Supabase | SUPABASE_SERVICE_ROLE_KEY=«J»
Supabase new | sb_secret_«s31»
PlanetScale | pscale_pw_«s43»
Neon | postgresql://neondb_owner:npg_«m12»@ep-cool-1.eu-central-1.aws.neon.tech/neondb
Upstash | UPSTASH_REDIS_REST_TOKEN=AX«s56»=
Contentful | CFPAT-«s43»
Okta | Authorization: SSWS 00«s40»
Auth0 | AUTH0_CLIENT_SECRET=«s64»
Keycloak | KEYCLOAK_CREDENTIALS_SECRET=«U»
Spotify | SPOTIPY_CLIENT_SECRET=«h32»
Home Assistant | long-lived access token: «J»
Pushover | PUSHOVER_USER_KEY=u«l29»
Rails credentials | RAILS_MASTER_KEY=«h32»
Rails master key by words | config/master.key is «h32»
Laravel | APP_KEY=base64:«b43»=
Django | SECRET_KEY = 'django-insecure-«p50»'
WordPress | define('DB_PASSWORD', '«p16»');
WordPress salt | define( 'AUTH_KEY',         '«z64»' );
Symfony | APP_SECRET=«h32»
ASP.NET machine key | <machineKey validationKey="«x64»" decryptionKey="«x48»" validation="SHA1" />
Spring | spring.datasource.password=«p14»
Next auth | NEXTAUTH_SECRET="«b43»="
JWT signing secret | JWT_SECRET=«m48»
Session secret in JavaScript | app.use(session({ secret: '«m24»', resave: false }))
# databases
Postgres with signs | postgresql://app:«m6»@«m4»#«m3»@db.internal:5432/shop
Postgres with a slash | postgres://app:«m6»/«m8»@db.internal/shop
URL with a quote | mysql://root:«m5»'«m6»@db.internal/shop
Mongo | mongodb+srv://ann:«m16»@cluster0.ab1cd.mongodb.net/shop
Redis | rediss://default:«m32»@eu1-cool-1.upstash.io:6379
RabbitMQ | amqps://shop:«m32»@rabbit.acme.test/vhost
ClickHouse | clickhouse://default:«p14»@ch.acme.test:9440/shop
SQLAlchemy | create_engine("postgresql+psycopg2://app:«m14»@localhost/shop")
JDBC Postgres | jdbc:postgresql://db.internal:5432/shop?user=app&password=«m16»&ssl=true
JDBC SQL Server | jdbc:sqlserver://db:1433;databaseName=shop;user=sa;password=«p14»;encrypt=true
ODBC | Driver={ODBC Driver 18};Server=db;Database=shop;Uid=sa;Pwd=«p14»;
libpq words | psql "host=db user=app password=«m14» dbname=shop"
PGPASSWORD | PGPASSWORD=«m14» pg_dump -h db shop
.pgpass | db.internal:5432:shop:app:«m16»
.my.cnf | [client]\nuser=root\npassword="«p14»"
mysql option | mysql -u root -p«m14» shop
mysql long option | mysqldump --user=root --password=«m14» shop
SQL user | CREATE USER 'app'@'%' IDENTIFIED BY '«p14»';
SQL role | ALTER ROLE app WITH LOGIN PASSWORD '«p14»';
SQL Server login | CREATE LOGIN app WITH PASSWORD = N'«p14»';
sqlplus | sqlplus shop/«m14»@db.internal:1521/ORCL
sqlcmd | sqlcmd -S db -U sa -P «p14» -Q "select 1"
mongosh | mongosh --username ann --password «m14» shop
redis-cli | redis-cli -a «m24» ping
redis.conf | requirepass «m24»
Kafka JAAS | sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="app" password="«m16»";
Elasticsearch | curl -H "Authorization: ApiKey «b55»=" https://es.acme.test
Snowflake | snowflake.connector.connect(user="ann", password="«p14»", account="acme")
PHP mysqli | $db = mysqli_connect("localhost", "root", "«p14»", "shop");
JDBC in Java | DriverManager.getConnection(url, "app", "«p14»");
Elixir | config :shop, Shop.Repo, username: "app", password: "«p14»"
# keys
RSA key | «P:RSA »
PKCS 8 key | «P:»
encrypted key | «P:ENCRYPTED »
EC key | «P:EC »
OpenSSH key | «P:OPENSSH »
key in JSON | «PJ»
key in an environment | PRIVATE_KEY="«PN»"
key in a YAML block | tls:\n  key: |\n«PI»
key in base64 | SSH_PRIVATE_KEY_B64=«K»
key without frame | private_key: |\n«W6»
PGP key | «PGP»
PuTTY key | «PPK»
age key | AGE-SECRET-KEY-1«E58»
WireGuard | [Interface]\nAddress = 10.0.0.2/32\nPrivateKey = «b43»=\n\n[Peer]\nPresharedKey = «b43»=
OpenVPN static key | «OVPN»
minisign | untrusted comment: minisign encrypted secret key\nRWRTY0Iy«b204»=
JWK | {"kty": "RSA", "n": "0vx7", "e": "AQAB", "d": "«s342»", "p": "«s171»"}
JWK symmetric | {"kty":"oct","k":"«s43»","alg":"HS256"}
VAPID | VAPID_PRIVATE_KEY=«s43»
keystore | keytool -genkey -keystore a.jks -storepass «m12» -keypass «m12»
signing in Gradle | storePassword 'store«m10»'\nkeyPassword 'key«m10»'
OpenSSL pass | openssl rsa -in a.pem -passin pass:«m14» -out b.pem
gpg passphrase | gpg --batch --passphrase «p16» -d a.gpg
zip password | 7z x backup.7z -p«m14»
restic | RESTIC_PASSWORD=«p20»
borg | export BORG_PASSPHRASE='«p20»'
# tokens of the web
JWT | «J»
PASETO | v4.local.«s180»
PASETO public | v2.public.«s200»
Bearer opaque | curl -H "Authorization: Bearer «s64»" https://api.acme.test
Basic header | Authorization: Basic «L»
curl user | curl -u "ann:«p14»" https://api.acme.test
curl proxy | curl --proxy-user ann:«m14» https://api.acme.test
X-Api-Key | curl -H "X-API-Key: «m32»" https://api.acme.test
wget | wget --user=ann --password=«m14» https://files.acme.test/a
query token | https://api.acme.test/v1/orders?access_token=«m40»&page=2
query key | https://api.acme.test/v1/orders?api_key=«m32»
reset link | https://acme.test/reset?token=«s43»
magic link | https://acme.test/login/verify?email=ann%40acme.test&code=«s32»
cookies | Cookie: _ga=GA1.2.3; sessionid=«m32»; csrftoken=«m64»; auth_token=«m40»
cookie session first | Cookie: connect.sid=s%3A«m32».«m43»; remember_token=«m40»; lang=en
Set-Cookie | Set-Cookie: JSESSIONID=«u32»; Path=/; HttpOnly
PHP session | Cookie: PHPSESSID=«l26»
Netscape cookie | .acme.test\tTRUE\t/\tTRUE\t1790000000\tsession_token\t«m48»
document.cookie | document.cookie = "sid=«m32»; path=/"
curl cookie | curl -b 'session=«m40»' https://acme.test
OAuth answer | {"access_token": "«m40»", "token_type": "bearer", "expires_in": 3600, "refresh_token": "«m48»"}
OAuth client | client_id=shop&client_secret=«m40»&grant_type=client_credentials
Python auth pair | requests.get(url, auth=("ann", "«p14»"))
Python headers | headers = {"Authorization": "Token «h40»"}
.netrc | machine api.acme.test\n  login ann\n  password «m16»
.netrc in one line | machine api.acme.test login ann password «m16»
.htpasswd | ann:$apr1$«m8»$«m22»
bcrypt | ann:$2y$10$«m53»
shadow | root:$6$«m16»$«m86»:19700:0:99999:7:::
Argon2 | $argon2id$v=19$m=65536,t=3,p=4$«m22»$«m43»
# second factors, networks, licences, wallets
TOTP address | otpauth://totp/Acme:ann?secret=«q32»&issuer=Acme
TOTP seed | 2FA seed: «q32»
TOTP with spaces | TOTP secret: «q4» «q4» «q4» «q4» «q4» «q4» «q4» «q4»
recovery codes | Recovery codes:\n«h5»-«h5»\n«h5»-«h5»\n«h5»-«h5»\n«h5»-«h5»
backup codes | backup codes: «h8», «h8», «h8», «h8»
Wi-Fi | WLAN password: «m16»
wpa_supplicant | network={\n  ssid="office"\n  psk="«p16»"\n}
Wi-Fi by QR | WIFI:S:office;T:WPA;P:«m14»;;
nmcli | nmcli dev wifi connect office password «m14»
IPsec | 10.0.0.1 10.0.0.2 : PSK "«m24»"
Cisco | enable secret 5 $1$«m4»$«m22»
Cisco type 7 | username admin password 7 «x20»
SNMP | snmp-server community «m14» RO
RADIUS | radius-server key «m16»
smb.conf mount | mount -t cifs //nas/share /mnt -o username=ann,password=«m14»
smbclient | smbclient //nas/share -U ann%«m14»
net use | net use Z: \\nas\share «p14» /user:ann
rsync | sshpass -p '«p14»' rsync -a . ann@nas:
LDAP | ldapsearch -D cn=admin,dc=acme -w «m14» -b dc=acme
PowerShell | ConvertTo-SecureString "«p14»" -AsPlainText -Force
PowerShell environment | $env:API_TOKEN = "«m32»"
setx | setx API_TOKEN «m32»
fish | set -x API_TOKEN «m32»
csh | setenv API_TOKEN «m32»
Dockerfile | ENV API_TOKEN «m32»
Dockerfile pair | ENV API_TOKEN=«m32»
chpasswd | echo 'ann:«p14»' | chpasswd
sudo | echo «m14» | sudo -S apt update
htpasswd command | htpasswd -bc .htpasswd ann «m14»
heredoc | cat > .env <<EOF\nDB_PASSWORD=«p16»\nDEBUG=1\nEOF
unattended Windows | <AdministratorPassword><Value>«m16»</Value><PlainText>true</PlainText></AdministratorPassword>
licence key | License key: «u5»-«u5»-«u5»-«u5»-«u5»
product key | Product key: «u5»-«u5»-«u5»-«u5»-«u5»
Ethereum key | private key: 0x«h64»
Bitcoin WIF | wallet private key 5«W50»
extended key | xprv9s21ZrQH143K«W96»
mnemonic | seed phrase: «w12»
mnemonic of 24 words | Mnemonic: "«w24»"
Nostr | nsec1«l58»
Stellar | stellar seed: S«q55»
Solana | [«N64»]
# as people write
bold label | **Password:** «p14»
bold label code | **API Key**: `«m32»`
list label | - Password: `«p14»`
Markdown table | | Service | User | Password |\n|---|---|---|\n| nas | ann | «p14» |
Markdown pair table | | Setting | Value |\n|---|---|\n| DB_PASSWORD | «p14» |
arrow | password -> «p14»
login pair | login: ann / password: «p14»
user and password | user ann, pw: «p14»
credentials pair | credentials: ann / «p14»
German label | Passwort: «p14»
German sentence | das Passwort lautet «p14»
German compound | WLAN-Schlüssel: «m20»
German credentials | Zugangsdaten: ann / «p14»
German key | API-Schlüssel: «m32»
French label | Mot de passe : «p14»
French sentence | le mot de passe est «p14»
French key | Clé API : «m32»
Spanish label | Contraseña: «p14»
Spanish sentence | la contraseña es «p14»
Spanish key | clave secreta: «m24»
Portuguese label | Senha: «p14»
Italian label | Parola d'ordine: «p14»
Dutch label | Wachtwoord: «p14»
Polish label | Hasło: «p14»
Russian label | Пароль: «p14»
Chinese label | 密码：«m16»
Japanese label | パスワード：«m16»
English sentence | the password is «p14»
English sentence with for | the password for the nas is «p14»
YAML capitals | DB_PASSWORD: «p14»
INI brackets | DB_PASS=«m5»(«m4»)«m4»
capitals of letters | DB_PASS=«a14»
capitals with a hash | ADMIN_PASSWORD=«m6»#«m6»
YAML block | password: >-\n  «m24»
YAML block of lines | api_secret: |\n«W4»
XML attribute | <user name="ann" password="«p14»"/>
XML element with attributes | <password encrypted="false">«p14»</password>
XML entry | <entry key="db.password">«m16»</entry>
plist | <key>apiToken</key>\n<string>«m32»</string>
INI | [mail]\npassword = «p14»
TOML | api_token = "«m40»"
JSON with escapes | «JJ»
JavaScript | const password = `«p14»`;
Ruby hash | :password => '«p14»',
PHP array | 'password' => '«p14»',
Go struct | Config{Password: "«p14»"}
Rust constant | const API_KEY: &str = "«m40»";
C define | #define WIFI_PASSWORD "«p14»"
Java property | private static final String PASSWORD = "«p14»";
Kotlin | val apiKey: String = "«m32»"
Swift | let apiKey: String = "«m32»"
C sharp | new NetworkCredential("ann", "«p14»")
Java setter | dataSource.setPassword("«p14»");
Python typed | api_key: str = "«m40»"
Python environment | os.environ["API_TOKEN"] = "«m40»"
flag | deploy --password «p14» --yes
flag with a sign | deploy --api-key=«m32» --yes
short story | token «m40» works, the other does not
long quoted | "signing_key": "«b1600»"
long bare | SIGNING_KEY=«b1600»
wrapped | SIGNING_KEY="«Y10»"
wrapped by backslashes | API_TOKEN=«m70»\\n«m70»\\n«m40»
# words between quotes
passphrase of words in an environment | BORG_PASSPHRASE="«t:correct9 horse Battery staple»"
passphrase of words as an option | gpg --batch --passphrase '«t:three words Here9»' -d a.gpg
password of words only | export RESTIC_PASSWORD='«t:correct horse battery staple»'
passphrase of words in YAML | passphrase: "«t:correct9 horse Battery staple»"
passphrase of words in JSON | {"passphrase": "«t:four little words4 here»"}
password of words in JSON | {"password": "«t:correct9 horse Battery staple»"}
option of words with a sign | --password="«t:Blue7 whale sings»"
passphrase of two words | ssh-keygen -t ed25519 -N '' && borg init --passphrase "«t:Winter2 snow!»"
passphrase of words with a number | BORG_PASSPHRASE='«t:Tr0ub4dor and 3 friends»'
password of short words | DB_PASSWORD="«t:my Blue9 words»"
password of words in INI | password = '«t:purple5 monkey dishwasher»'
option of words only | --passphrase "«t:correct horse battery staple»"
passphrase of words with a hyphen | cryptsetup: passphrase="«t:river-stone 77 Lamp»"
passphrase of words in a Dockerfile | ENV BORG_PASSPHRASE "«t:correct9 horse Battery staple»"
passphrase of words in PowerShell | $env:BORG_PASSPHRASE = "«t:correct9 horse Battery staple»"
passphrase of words in a sentence | the passphrase is "«t:correct9 horse Battery staple»"
# rows below headings
CSV | user,password\nann,«p14»\nbob,«m14»
CSV of several columns | name;Passwort;host\nann;«p14»;nas
TSV | host\tuser\tpassword\nnas\tann\t«p14»
CSV with quotes | "user","api_key"\n"ann","«m32»"
CSV with spaces | id, user, secret_token\n1, ann, «m32»
CSV of a browser | name,url,username,password,note\nacme,https://acme.test/login,ann,«p14»,\nshop,https://shop.test/,bob@acme.test,«m14»,old
CSV of AWS | User name,Access key ID,Secret access key\nann,AKIA«u16»,«b40»
CSV of a manager | url,username,password,totp,extra,name,grouping,fav\nhttps://acme.test,ann,«p14»,,,acme,,0
rows of psql | id | user | password\n----+------+---------\n 1 | ann | «p14»
CSV with a comma in quotes | user,password,note\nann,"«m6»,«m8»",x
CSV of tokens | service,access_token\nci,«m40»\nshop,«m32»
CSV behind a command | $ cat users.csv\nid,email,password,role\n1,ann@acme.test,«p14»,admin\n2,bob@acme.test,«m12»,user\n$ ls
TSV of tokens | name\tclient_secret\nweb\t«m40»
# more commands and services
net use star | net use * \\10.0.0.7\c$ /u:ann "«p14»"
mc alias | mc alias set minio https://minio.acme.test:9000 minioadmin «m40»
mc alias with key | mc alias set s3 https://s3.amazonaws.com AKIA«u16» «b40»
mc config | mc config host add minio http://localhost:9000 ann «m32»
rabbitmqctl | rabbitmqctl add_user ann «p14»
rabbitmqctl change | rabbitmqctl change_password ann '«p14»'
rabbitmqctl node | sudo rabbitmqctl -n rabbit@nas add_user ann «m14»
rabbitmqctl auth | rabbitmqctl authenticate_user ann «p14»
lftp | lftp -u ann,«p14» sftp://files.acme.test
lftp quoted | lftp -e 'ls' -u 'ann,«m14»' files.acme.test
PDO | $db = new PDO("mysql:host=db;dbname=shop", "root", "«p14»");
PDO single | new \PDO('mysql:host=localhost;dbname=shop;charset=utf8mb4', 'root', '«p14»', [])
mysqli object | $m = new mysqli("localhost", "root", "«p14»", "shop");
psexec64 | PsExec64.exe \\10.0.0.7 -accepteula -u CORP\ann -p "«p14»" cmd.exe
openssl k | openssl enc -aes-256-cbc -salt -in a -out b -k «p14»
openssl pass | openssl enc -d -aes-256-cbc -in a -pass pass:«p14»
openssl pbkdf2 k | tar c . | openssl enc -e -aes256 -pbkdf2 -k '«p14»' > a
snmpget | snmpget -v2c -c «m12» 10.0.0.1 sysDescr.0
snmpwalk | snmpwalk -v 2c -c «p12» 10.0.0.1
wg pubkey | echo «b43»= | wg pubkey
wg pubkey quoted | echo "«b43»=" | wg pubkey > pub
ClickUp | pk_12345678_«u32»
Azure DevOps new token | «m52»JQQJ99«u14»AAAAAZDO«m4»
Azure OpenAI | «m52»JQQJ99«u14»AAABACOG«m4»
# links, lights, and more commands
Adyen short | AQE«m6»«b120»-«b43»=-«m16»
Adyen env | const client = new Client({ apiKey: "AQE«b100»-«b43»=-«s16»" })
Voyage | pa-«m43»
Voyage env | VOYAGE=pa-«s43»
Hue path | curl http://192.168.1.20/api/«s40»/lights
Hue groups | http://philips-hue.local/api/«s40»/groups/1/action
Hue JSON | [{"success":{"username":"«s40»"}}]
Hue pair JSON | {"success":{"username":"«s40»","clientkey":"«x32»"}}
reset path | https://acme.test/reset-password/«m40»
reset path hex | https://acme.test/password/reset/«h64»?email=ann%40acme.test
verify path | https://acme.test/verify/«m32»
magic path | https://acme.test/magic/«s32»
magic-link path | https://app.acme.test/auth/magic-link/«s43»
Django reset link | https://acme.test/reset/MQ/c3m8vd-«h32»/
Django accounts | https://acme.test/accounts/reset/Mg/«l6»-«h32»/
Laravel verify | https://acme.test/email/verify/1/«h40»?expires=1700000000&signature=«h64»
invite path | https://acme.test/invite/«m24»
activate path | https://acme.test/activate/«m32»
confirm path | https://acme.test/confirm-email/«m32»
unsubscribe | https://acme.test/users/confirmation?confirmation_token=«s20»
oobCode | https://acme.firebaseapp.com/__/auth/action?mode=resetPassword&oobCode=«s54»&apiKey=AIza«s35»
magic query | https://acme.test/login?magic=«m32»
otp query | https://acme.test/login?otp=«m32»
reset_token query | https://acme.test/reset?reset_token=«m32»
Slack z-app | z-app-1-A«u10»-«d13»-«h64»
curl flags | curl -sSLu ann:«p14» https://api.acme.test
curl flags 2 | curl -sku 'ann:«m14»' https://api.acme.test
wg here | wg pubkey <<< «b43»=
wg here quoted | wg pubkey <<<"«b43»="
openssl passwd | openssl passwd -6 «p14»
openssl passwd 2 | openssl passwd -1 -salt ab '«m14»'
openssl passwd 3 | openssl passwd «m14»
openssl hmac | openssl dgst -sha256 -hmac «m32» file.txt
openssl hmac q | printf x | openssl dgst -sha256 -hmac "«p24»"
openssl enc K | openssl enc -aes-256-cbc -K «h64» -iv 0102 -in a
openssl aes K | openssl aes-256-cbc -K «h64» -iv 0102 -in a
net user | net user ann «p14»
net user add | net user ann «p14» /add
net user q | net user "ann" "«p14»" /domain
snmp A | snmpget -v3 -u ann -l authPriv -a SHA -A «p14» -x AES -X «m14» 10.0.0.1 sysDescr.0
snmp X | snmpwalk -v 3 -u ann -l authPriv -a SHA -A '«m12»' -x AES -X '«p14»' 10.0.0.1
net use IP | net use \\10.0.0.7\s /user:me «p14»
net use before | net use \\10.0.0.7\s «p14» /user:me
net use Z | net use Z: \\10.0.0.7\s /user:CORP\me "«p14»"
CSV Polish | użytkownik,hasło\nann,«p14»
CSV Russian | логин;пароль;сервер\nann;«p14»;nas
CSV Chinese | 用户名,密码\nann,«p14»
CSV Chinese 2 | 主机,用户,密码,备注\nnas,ann,«m14»,好
CSV Russian tail | пользователь,пароль\nann,«p14»
CSV Japanese | ユーザー,パスワード\nann,«p14»
Markdown Russian | | сервис | пароль |\n|---|---|\n| nas | «p14» |
oobCode JSON | {"oobCode": "«s54»"}
net use X | net use X: \\10.0.0.7\s /u:ann «p14» /persistent:yes
Flask | https://acme.test/confirm/ImFubkBhY21lLnRlc3Qi.«m6».«s27»
openssl macopt | openssl dgst -sha256 -mac HMAC -macopt hexkey:«h64» f
reset uuid | https://acme.test/reset-password/«U»
log line | 10.0.0.1 "GET /reset-password/«s43» HTTP/1.1" 200
Adyen real | AQEyhmfxK4«b58»gkxgBw==-«b43»=-W+t7NF;s4}%=kUSD
Adyen header | X-API-Key: AQE«b93»==-«b43»=-«m16»
Adyen in JSON | {"apiKey":"AQEyhm«b90»==-«b43»=-«m16»"}
Adyen of two parts | AQE«b120»-«b43»=
Voyage in code | voyageai.Client("pa-«s43»")
Voyage header | Authorization: Bearer pa-«s43»
Hue delete | DELETE /api/«m40»/lights/3
Hue sensors | curl -X PUT -d '{"on":true}' "http://10.0.0.5/api/«s40»/groups/0/action"
Hue no path | http://10.0.0.5/api/«s40»
Hue delete whitelist | DELETE http://b/api/«s40»/config/whitelist/«s40»
Hue app key | hue-application-key: «s40»
Hue python | Bridge('10.0.0.5', username='«s40»')
Hue yaml | hue:\n  username: «s40»
magic short | https://acme.test/magic?t=1&magic=«m24»
devise | https://acme.test/users/password/edit?reset_password_token=«s20»
unlock | https://acme.test/users/unlock?unlock_token=«s20»
set password | https://acme.test/set-password/«m24»
create password | https://acme.test/create-password/ann%40acme.test/«m48»
forgot | https://acme.test/forgotPassword/«h40»
resetPassword | https://acme.test/#/resetPassword/«h40»
verifyEmail | https://acme.test/verifyEmail/«m24»
email verify | https://acme.test/email-verify/«s43»
localhost | http://localhost:3000/auth/reset-password/«h64»
Markdown link 2 | [Reset](https://acme.test/reset-password/«m40»)
HTML link | <a href="https://acme.test/reset-password/«m40»">reset</a>
HTML rel | <a href="/verify/«m40»">x</a>
curl link | curl -X POST https://acme.test/api/v1/auth/verify/«m40» -d x
Rails log | Started GET "/users/confirmation/«m24»" for 127.0.0.1
Express | GET /api/auth/verify/«h64» 200 12 ms
JWT link | https://acme.test/verify/«J»
Rails signed | https://acme.test/magic/eyJfcmFpbHMi«m60»--«h40»
login token | https://acme.test/login/«m32»
signin | https://acme.test/sign-in/link/«m43»
accept-invite | https://acme.test/accept-invite/«m32»
email confirm | https://acme.test/accounts/confirm-email/MQ:1rABcd:«s43»/
oob lower | https://acme.test/?oobcode=«s54»
magic token | https://acme.test/?magic_token=«s32»
login_token | https://acme.test/?login_token=«s32»
ml | https://acme.test/?magicLink=«s32»
xapp env | SLACK_APP_TOKEN=xapp-1-A«u10»-«d13»-«h64»
z-app env | "z-app-2-A«u10»-«d13»-«h64»"
curl n | curl -nsSfLu me:«p12» -o x https://h
curl far | curl -X POST -H "Content-Type: application/json" -ksu me:«p12» https://h
curl su quoted | curl -su "me@acme.test:«p14»" https://h
curl double line | curl \\n  -fsSLu me:«m14» https://h
wg sh | $(wg pubkey <<< '«b43»=')
wg var | PUB=$(wg pubkey<<<«b43»=)
wg set | wg set wg0 private-key <(echo «b43»=)
wg psk | wg set wg0 peer x preshared-key <(echo «b43»=)
passwd salt | openssl passwd -apr1 -salt xy '«p14»'
passwd 5 | HASH=$(openssl passwd -5 "«p14»")
passwd noflag | openssl passwd «p14»
hmac sha | echo -n a | openssl sha256 -hmac '«m24»' -binary
hmac hex | openssl dgst -sha1 -hex -hmac "«m20»" < f
enc K late | openssl enc -d -aes-128-cbc -nopad -K «h32» -iv 00
enc K chacha | openssl enc -chacha20 -K «x64» -iv 00
mac | openssl mac -macopt hexkey:«h64» HMAC
kdf | openssl kdf -keylen 32 -kdfopt pass:«p14» PBKDF2
net user 3 | net user administrator "«p14»"
net user domain | NET USER ann «p12» /add /domain
net user ps | net.exe user svc_sql «p12» /ADD
snmp quoted | snmpset -v3 -l authPriv -u me -a SHA-256 -A "«p14»" -x AES -X "«p14»" host oid s x
snmp authNoPriv | snmpbulkwalk -v3 -l authNoPriv -u me -a MD5 -A «p10» host
snmp create user | net-snmp-create-v3-user -ro -A «p14» -a SHA -X «p12» -x AES me
snmp conf | createUser me SHA "«p14»" AES "«p12»"
CSV Polish q | "użytkownik";"hasło"\n"ann";"«p14»"
CSV Polish mid | nazwa,hasło,uwagi\nann,«p14»,x1
CSV Russian tab | имя\tпароль\nann\t«p14»
CSV Russian caps | Логин,Пароль\nann,«p14»
CSV Chinese token | 服务,令牌\nci,«m40»
CSV Chinese trad | 帳號,密碼,備註\nann,«p14»,無
CSV Chinese one char | 名,密码,注\nann,«p14»,x
CSV Korean | 사용자,비밀번호\nann,«p14»
CSV Turkish | kullanıcı,şifre\nann,«p14»
CSV first | пароль,логин\n«p14»,ann
CSV wide | имя,фамилия,отчество,должность,телефон,пароль,примечание\na,b,c,d,1,«p14»,x
psql Russian | id | логин | пароль\n----+------+---------\n 1 | ann | «p14»
oobCode name | oobCode = "«s54»"
# sentences of many languages
English aside | the password (for prod) is «p14»
English aside of a key | the API key (staging, read only) is «m32»
English change | I changed the password to «p14» yesterday
English reset | reset the password to «p14».
English set for | we set the root password for the nas to «p14»
English passive | the password has been reset to «m14»
English passive was | Password was changed to «p14»
English from to | changed the password from «m12» to «m14»
English that | the password that we use for staging is «p14»
English new | new password is «p14»
English dash | password - «p14»
English em dash | the password — «p14»
English now set | the password is now set to «p14»
English rotated | rotated the secret to «m24»
English passphrase | the passphrase of the backup disk is "«p14»"
English with | log in as ann with password «p14»
English use | use the password «p14» for now
English code | the password is `«p14»`
English should be | the password should be «p14»
English 1 | My password is «p14», keep it safe
English 2 | The root password (on staging) is now «p14»
English 3 | the admin password for https://nas.local is «p14»
English 4 | I've changed the password for the prod db to «p14»
English 5 | please set password to "«p14»"
English 6 | Password reset to: «p14»
English 7 | password updated: «p14»
English 8 | Your new password is: «p14»
English 9 | Your temporary password is «p14»
English 10 | our db password (postgres, prod) = «p14»
English 11 | the wifi password at the office is «m12»
English 12 | The password of user ann on nas2 is «p14»
English 13 | pwd is «p14»
English 14 | I changed it: password is now "«p14»"
English 15 | the password got changed to «p14»
English 16 | change my password to «p14» please
English 17 | sets the passphrase to `«p14»`
English 18 | password → «p14»
English 20 | Password (prod): «p14»
English 21 | password is: `«p14»`
English 23 | the password will be «p14» from tomorrow
English 24 | password used to be «p14»
English 25 | the secret key is «m40»
English 26 | the API token for ci is «m40»
German aside | das Passwort (für prod) lautet «p14»
German changed | habe das Passwort auf «p14» geändert
German passive | Das Passwort wurde auf «p14» zurückgesetzt
German 1 | das neue Passwort ist «p14»
German 2 | das Passwort vom NAS ist «p14»
German 3 | Passwort (Test) ist «p14»
German 4 | Passwort geändert auf «p14»
German 5 | das Passwort heißt «p14»
German 6 | das Kennwort für den Server lautet: «p14»
German 7 | ich habe das Passwort von «m12» auf «m14» geändert
French aside | le mot de passe (prod) est «p14»
French changed | j'ai changé le mot de passe en «p14»
French of | le mot de passe de la base est «p14»
French 1 | le mot de passe est maintenant «p14»
French 2 | le nouveau mot de passe : «p14»
French 3 | le mot de passe du serveur est «p14»
French 4 | le mot de passe a été changé en «p14»
French 5 | le mot de passe de la base : «p14»
Spanish aside | la contraseña (de prod) es «p14»
Spanish changed | cambié la contraseña a «p14»
Spanish of | la contraseña de la base de datos es «p14»
Spanish 1 | la contraseña es: «p14»
Spanish 2 | la nueva contraseña es «p14»
Spanish 3 | la contraseña del wifi: «p14»
Spanish 4 | la clave es «p14»
Spanish 5 | se cambió la contraseña a «p14»
Spanish 6 | he cambiado la contraseña por «p14»
Portuguese of | a senha do banco é «p14»
Portuguese plain | a senha é «p14»
Portuguese long | a senha do banco de dados de produção é: «p14»
Portuguese changed | mudei a senha para «p14»
Portuguese passive | a senha foi alterada para «p14»
Portuguese palavra | a palavra-passe é «p14»
Portuguese 1 | A senha do servidor é «p14»
Portuguese 3 | a nova senha é «p14»
Portuguese 4 | a senha de root do banco é «p14»
Portuguese 5 | senha do wifi: «p14»
Portuguese 6 | troquei a senha para «p14»
Portuguese 7 | a senha (produção) é «p14»
Portuguese 8 | minha senha é «p14»
Portuguese 9 | a palavra-passe do servidor é «p14»
Portuguese 10 | redefini a senha como «p14»
Italian is | la password è «p14»
Italian of | la password del database è «p14»
Italian colon | la password per il server: «p14»
Italian changed | ho cambiato la password in «p14»
Italian 1 | la password è: «p14»
Italian 2 | la password di root è «p14»
Italian 3 | la nuova password è «p14»
Italian 4 | password del wifi: «p14»
Italian 5 | la password (produzione) è «p14»
Italian 6 | ho impostato la password a «p14»
Italian 7 | la parola d'ordine è «p14»
Dutch is | het wachtwoord is «p14»
Dutch of | het wachtwoord van de database is «p14»
Dutch colon | wachtwoord voor de nas: «p14»
Dutch changed | ik heb het wachtwoord veranderd in «p14»
Dutch 1 | Het wachtwoord is: «p14»
Dutch 2 | het nieuwe wachtwoord is «p14»
Dutch 3 | wachtwoord van de server: «p14»
Dutch 4 | het wachtwoord (prod) is «p14»
Dutch 5 | wachtwoord gewijzigd naar «p14»
Dutch 6 | mijn wachtwoord is «p14»
Polish to | hasło to «p14»
Polish of | hasło do bazy to «p14»
Polish of colon | hasło do bazy danych: «p14»
Polish sounds | hasło brzmi «p14»
Polish changed | zmieniłem hasło na «p14»
Polish instr | hasłem jest «p14»
Polish ascii | haslo: «p14»
Polish 1 | Hasło to «p14»
Polish 2 | hasło do serwera to: «p14»
Polish 3 | hasło do bazy danych brzmi «p14»
Polish 4 | nowe hasło: «p14»
Polish 5 | hasło admina to «p14»
Polish 6 | hasło (prod) to «p14»
Polish 7 | hasło do wifi: «p14»
Polish 8 | ustawiłem hasło na «p14»
Czech label | heslo: «p14»
Czech is | heslo k databázi je «p14»
Czech changed | změnil jsem heslo na «p14»
Czech 1 | Heslo: «p14»
Czech 2 | heslo je: «p14»
Czech 3 | nové heslo je «p14»
Czech 4 | heslo od databáze je «p14»
Czech 5 | heslo k wifi: «p14»
Czech 6 | heslo (prod) je «p14»
Czech 7 | heslo bylo změněno na «p14»
Slovak | heslo do databázy je «p14»
Hungarian label | jelszó: «p14»
Hungarian bare | a jelszó «p14»
Hungarian poss | az adatbázis jelszava: «p14»
Hungarian for | jelszó az adatbázishoz: «p14»
Hungarian 1 | Jelszó: «p14»
Hungarian 2 | az új jelszó: «p14»
Hungarian 3 | a jelszavam «p14»
Hungarian 4 | a szerver jelszava «p14»
Hungarian 5 | a jelszó a következő: «p14»
Hungarian 6 | wifi jelszó: «p14»
Hungarian 7 | JELSZÓ: «p14»
Hungarian 8 | a jelszó (éles): «p14»
Turkish label | şifre: «p14»
Turkish possessed | veritabanı şifresi: «p14»
Turkish bare | sunucunun şifresi «p14»
Turkish parola | Parola: «p14»
Turkish changed | şifreyi «p14» olarak değiştirdim
Turkish capital | Şifre: «p14»
Turkish 2 | şifreniz: «p14»
Turkish 3 | wifi şifresi: «p14»
Turkish 4 | yeni şifre: «p14»
Turkish 5 | şifre «p14»
Turkish 6 | şifrem «p14»
Turkish 7 | parolanız: «p14»
Turkish 8 | ŞİFRE: «p14»
Turkish 9 | sifre: «p14»
Turkish 10 | veritabanının şifresi şu: «p14»
Turkish 11 | parola: «p14»
Russian for | пароль от базы: «p14»
Russian dash | пароль — «p14»
Russian hyphen | Пароль - «p14»
Russian long | пароль от базы данных на проде: «m14»
Russian to | пароль к серверу — «p14»
Russian this | пароль это «p14»
Russian changed | я сменил пароль на «p14»
Russian passive | пароль изменён на «p14»
Russian now | пароль теперь «p14»
Russian declined | зайди с паролем «p14»
Russian such | пароль такой: «p14»
Russian capitals | ПАРОЛЬ: «p14»
Russian token | токен: «m32»
Russian key | ключ API: «m32»
Russian 1 | Пароль от админки: «p14»
Russian 2 | пароль для root: «p14»
Russian 3 | пароль от почты - «p14»
Russian 4 | логин ann, пароль «p14»
Russian 5 | Новый пароль: «p14»
Russian 6 | пароль — «m12».
Russian 7 | пароль от вайфая «p14»
Russian 8 | пароль базы данных: «p14»
Russian 9 | пароль к базе «p14»
Russian 10 | поменяли пароль на «p14»
Russian 11 | вот пароль: «p14»
Russian 12 | пароль на проде: «p14»
Russian 13 | пароль базы — «p14»
Russian 14 | пароль (прод) — «p14»
Russian 15 | секрет: «m24»
Russian 16 | кодовое слово: «p14»
Ukrainian for | пароль від бази: «p14»
Ukrainian dash | пароль до сервера — «p14»
Ukrainian changed | змінив пароль на «p14»
Ukrainian 1 | пароль від пошти: «p14»
Ukrainian 2 | новий пароль — «p14»
Ukrainian 3 | пароль для бази даних: «p14»
Ukrainian 4 | пароль бази: «p14»
Ukrainian such | пароль такий: «p14»
Korean sentence | 비밀번호는 «m12»입니다
Korean sentence no space | 비밀번호는«p14»입니다.
Korean db | 데이터베이스 비밀번호는 «p14» 입니다
Korean change | 비밀번호를 «p14»로 변경했습니다
Korean short | 서버 비번은 «m12»이에요
Korean label | 비밀번호: «p14»
Korean loan | 패스워드: «p14»
Korean cipher | 관리자 암호는 «p14»입니다
Korean 1 | DB 비밀번호는 «m12»이고 포트는 5432
Korean 2 | 비밀번호가 «p14»로 바뀌었습니다
Korean 3 | 새 비밀번호: «p14»
Korean 4 | 비밀번호 «p14» 입니다
Korean 5 | 비밀번호는 "«p14»"입니다
Korean 6 | 루트 비밀번호(운영)는 «p14»입니다
Korean 7 | API 키는 «m32»입니다
Korean 8 | 관리자 비밀번호 = «p14»
Chinese for | 数据库密码为 «p14»
Chinese is | 密码是«p14»
Chinese is comma | 密码是«m12»，请保密
Chinese changed | 密码已改为 «p14»
Chinese ba | 我把密码改成了 «p14»
Chinese reset | 密码重置为«m14»。
Chinese trad | 資料庫密碼為「«p14»」
Chinese key | 密钥是 «m32»
Chinese token | 令牌为 «m32»
Chinese aside | 密码（生产环境）是 «p14»
Chinese 1 | 密码是：«p14»
Chinese 2 | 数据库的密码是 «p14»
Chinese 3 | root密码为«p14»
Chinese 4 | 新密码：«p14»
Chinese 5 | 密码：«p14»，端口：5432
Chinese 6 | 密码改为«p14»
Chinese 7 | 密码已经改成«p14»了
Chinese 8 | 管理员密码是“«p14»”
Chinese 9 | 服务器密码为：«p14»。
Chinese 10 | 密码设置成 «p14»
Chinese 11 | 密码 «p14»
Chinese 12 | 密碼是 «p14»
Chinese 13 | 口令是 «p14»
Chinese 14 | API密钥为«m32»
Chinese 15 | 密码就是«p14»
Chinese 16 | 密码(测试环境)为 «p14»
Japanese wa desu | パスワードは«m12»です
Japanese wa space | データベースのパスワードは «p14» です。
Japanese quoted | パスワードは「«p14»」です
Japanese changed | パスワードを«p14»に変更しました
Japanese aside | パスワード（本番）は«p14»です
Japanese code | 暗証コード：«m14»
Japanese 1 | パスワードは«p14»です。
Japanese 2 | 新しいパスワードは「«p14»」です
Japanese 3 | パスワード：«p14»
Japanese 4 | DBのパスワードは«m12»になりました
Japanese 5 | パスワードを「«p14»」に変更した
Japanese 6 | パスワードが«p14»に変わりました
Japanese 7 | パスワード «p14»
Japanese 8 | ルートのパスワードは、«p14»です
Japanese 9 | APIキーは«m32»です
Japanese 10 | パスワードは以下: «p14»
Japanese 11 | パスワードは『«p14»』
Swedish | lösenordet är «p14»
Danish | adgangskoden er «p14»
Norwegian | passordet er «p14»
Finnish | salasana on «p14»
Romanian | parola este «p14»
Croatian | lozinka je «p14»
Vietnamese | mật khẩu là «p14»
Indonesian | kata sandi adalah «p14»
Greek | ο κωδικός είναι «p14»
Arabic | كلمة المرور هي «p14»
"""
PROSE = {
    "English": ("Please use this for the staging system, and tell nobody:", "Thanks, that was all of it."),
    "German": ("Bitte nimm für das Testsystem das hier, und sag es niemandem:", "Danke, das war schon alles."),
    "French": ("Voici ce qu'il faut pour le système de test, à ne pas divulguer :", "Merci, c'était tout."),
}
"""What stands before and behind a secret, in three languages."""
_PLACE = re.compile(r"«([A-Za-z]+)(\d*)(?::([^»]*))?»")
MARKS = "!$%*+=?@^_~-.#"


class Filling:
    """Makes up the values of one template, and keeps them."""

    def __init__(self, seed: str) -> None:
        self.make = Maker(seed)
        self.pieces: list[str] = []

    def __call__(self, place: re.Match[str]) -> str:
        letter, length, more = place[1], int(place[2] or 0), place[3] or ""
        if letter in ALPHABETS:
            return self.kept(self.make(length, ALPHABETS[letter]))
        return FORMS[letter](self, length, more)

    def kept(self, value: str) -> str:
        self.pieces.append(value)
        return value

    def lines(self, count: int, length: int = 64, alphabet: str = BASE64) -> list[str]:
        return [self.kept(self.make(length, alphabet)) for _ in range(count)]

    def password(self, length: int) -> str:
        value = self.make(length)
        marks = [self.make.one(MARKS) for _ in range(2)]
        return self.kept(f"{value[:3]}{marks[0]}{value[4:-4]}{marks[1]}{value[-3:]}")

    def pem(self, kind: str) -> str:
        pem = self.make.pem(kind)
        self.pieces += pem.split("\n")[1:-1]
        return pem

    def in_base64(self, text: str) -> str:
        return self.kept(base64.b64encode(text.encode()).decode())

    def wireguard(self, length: int) -> str:
        if length < 20:
            return textwrap.indent("\n".join(self.lines(length)), "  ")
        return self.kept(self.make(length, "".join(sorted(set(ALNUM) - set("0OIl")))))

    def putty(self) -> str:
        public, private = ["A" * 64] * 3, self.lines(6)
        head = ["PuTTY-User-Key-File" + "-3: ssh-ed25519", "Encryption: none", "Comment: ann", "Public-Lines: 3"]
        return "\n".join([*head, *public, "Private-Lines: 6", *private, f"Private-MAC: {self.make(64, HEX)}"])


def framed(name: str, *lines: str) -> str:
    return "\n".join([f"-----{'BEGIN'} {name}-----", *lines, f"-----{'END'} {name}-----"])


FORMS: Mapping[str, Callable[[Filling, int, str], str]] = {
    "d": lambda fill, length, _: fill.make.digits(length),  # numbers of accounts, not secret
    "a": lambda fill, length, _: fill.kept(fill.make.letters(length)),
    "p": lambda fill, length, _: fill.password(length),
    "z": lambda fill, length, _: fill.kept(fill.make(length, ALNUM + MARKS + " ()[]{}|&:;,/")),
    "t": lambda fill, _, words: fill.kept(words),
    "x": lambda fill, length, _: fill.kept(fill.make(length, HEX.upper())),
    "E": lambda fill, length, _: fill.kept(fill.make(length, "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L")),
    "U": lambda fill, _, __: fill.kept(fill.make.uuid()),
    "J": lambda fill, _, __: fill.kept(fill.make.jwt()),
    "L": lambda fill, _, __: fill.in_base64(f"ann:{fill.make(18)}"),
    "B": lambda fill, _, __: fill.in_base64(fill.make(18)),
    "K": lambda fill, _, __: fill.in_base64(fill.make.pem("RSA ")),
    "W": lambda fill, length, _: fill.wireguard(length),
    "Y": lambda fill, length, _: "\n".join(fill.lines(length)),
    "N": lambda fill, length, _: fill.kept(",".join(str(fill.make.number(256)) for _ in range(length))),
    "w": lambda fill, length, _: fill.kept(" ".join(fill.make.one(WALLET_WORDS) for _ in range(length))),
    "P": lambda fill, _, kind: fill.pem(kind),
    "PN": lambda fill, _, __: fill.pem("RSA ").replace("\n", "\\n"),
    "PI": lambda fill, _, __: textwrap.indent(fill.pem(""), "    "),
    "PJ": lambda fill, _, __: json.dumps({"type": "service_account", "private_key": fill.pem("") + "\n"}),
    "PGP": lambda fill, _, __: framed("PGP PRIVATE KEY BLOCK", "", *fill.lines(30), "=ab1C"),
    "PPK": lambda fill, _, __: fill.putty(),
    "OVPN": lambda fill, _, __: framed("OpenVPN Static key V1", *fill.lines(16, 32, HEX)),
    "JJ": lambda fill, _, __: json.dumps({"body": json.dumps({"password": fill.password(14)})}),
}
"""What a letter alone stands for."""


def kinds() -> Iterator[tuple[str, str]]:
    """Name and template of each kind."""
    for line in KINDS.strip().split("\n"):
        if not line.startswith("# "):
            name, _, template = line.partition(" | ")
            template = template.replace("\\\\n", "\x00").replace("\\n", "\n").replace("\\t", "\t")
            yield name, template.replace("\x00", "\\\n")


def planted_kinds(seed: int) -> dict[str, Planted]:
    """Each kind, made up for this seed: the text, and the pieces of which nothing may be readable."""
    planted: dict[str, Planted] = {}
    for name, template in kinds():
        filling = Filling(f"{name}{seed}")
        text = _PLACE.sub(filling, template)
        planted[name] = text, [part for piece in filling.pieces if len(piece) > 3 for part in ends(piece)]
    return planted


def unescaped(data: str) -> str:
    """`data`, and behind it what it says at whatever depth of escaping."""
    return data + data.replace("\\n", "\n").replace('\\"', '"').replace("\\", "")


def still_there(pieces: list[str], data: str) -> list[str]:
    """The pieces that can be read in `data`, at whatever depth of escaping."""
    plain = unescaped(data)
    return [piece for piece in pieces if piece in plain]


def readable_kinds(planted: Mapping[str, Planted], data: str) -> dict[str, list[str]]:
    """The kinds of which pieces can be read in `data`, with these pieces."""
    plain = unescaped(data)
    left = {kind: [piece for piece in pieces if piece in plain] for kind, (_, pieces) in planted.items()}
    return {kind: pieces for kind, pieces in left.items() if pieces}


def ends(value: str) -> list[str]:
    """A short value whole; of a longer one its beginning, its middle and its end."""
    middle = len(value) // 2
    return [value] if len(value) < 24 else [value[:12], value[middle - 6 : middle + 6], value[-12:]]
