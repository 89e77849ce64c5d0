"""Lines as logs of training runs hold them, each with what must not leave the house.

No secret is real, and none is written out: `_key` makes up something of the right alphabet and
length, the same in every run, so that no scanner of repositories takes one for real.
"""

from __future__ import annotations

import base64
import random
import string
from dataclasses import dataclass

UPPER, LOWER, DIGITS = string.ascii_uppercase, string.ascii_lowercase, string.digits
WORD = string.ascii_letters + DIGITS
HEX = "0123456789abcdef"
BASE32 = UPPER + "234567"
BASE64 = WORD + "+/"
URL64 = WORD + "-_"


@dataclass(frozen=True)
class Line:
    """One line, what must be gone from it, and what must stay."""

    text: str
    gone: tuple[str, ...]
    stay: tuple[str, ...] = ()


def _key(seed: str, length: int, alphabet: str = WORD) -> str:
    """Return something that looks like a key: letters of the alphabet, a digit among them."""
    chance = random.Random(seed)
    made = [chance.choice(alphabet) for _ in range(length)]
    for place, kind in enumerate((DIGITS, LOWER, UPPER)):
        letters = [letter for letter in alphabet if letter in kind]
        if letters and length > 6:
            made[2 + place] = chance.choice(letters)
    return "".join(made)


def _jwt(seed: str) -> tuple[str, str, str]:
    head = base64.urlsafe_b64encode(b'{"alg":"HS256","typ":"JWT"}').decode().rstrip("=")
    body = base64.urlsafe_b64encode(f'{{"sub":"{seed}","iat":1516239022}}'.encode()).decode()
    return head, body.rstrip("="), _key(seed, 43, URL64)


def _line(text: str, *gone: str, stay: tuple[str, ...] = ()) -> Line:
    return Line(text, gone, stay)


def _keyed(text: str, key: str, *more: str, stay: tuple[str, ...] = ()) -> Line:
    """A line with a key in the place of KEY."""
    return Line(text.replace("KEY", key), (key[4:] if len(key) > 12 else key, *more), stay)


_HEAD, _BODY, _SIGNATURE = _jwt("ada")

PATHS = (
    _line("OSError: [Errno 28] No space left on device: /home/ada", "ada"),
    _line("PYTHONPATH=/opt/lib:/home/ada/src:/home/ada", "ada"),
    _line("docker run -v /home/alovelace:/workspace tf", "alovelace"),
    _line("cd /Users/ada.lovelace && python train.py", "ada.lovelace", stay=("python train.py",)),
    _line("E0312 loader.cc:12] cannot open:/home/ada/secret/a.tfrecord", "ada", "secret"),
    _line(
        'File "C:/Users/Ada Lovelace/project-x/train.py", line 3',
        *("Ada", "Lovelace", "project-x"),
        stay=("train.py", "line 3"),
    ),
    _line("could not read C:/Users/ada/data/train.npy", "ada", stay=("train.npy",)),
    _line(r"PS C:\Users\alovelace> python train.py", "alovelace"),
    _line(r"FileNotFoundError: '\\\\fs01.corp\\homes\\ada\\x.csv'", "fs01", "homes", "ada"),
    _line(r"copying \\NAS-7\research\ada\set.h5 to cache", "NAS-7", "research", "ada"),
    _line("mounted //nas7/research/ada on /mnt/data", "nas7", "research", "ada"),
    _line("file:///home/ada/ckpt/model.keras was not found", "ada", stay=("model.keras",)),
    _line("/mnt/c/Users/ada/train.py:17: UserWarning", "ada", stay=("train.py:17",)),
    _line("rsync ~ada/data/ .", "ada"),
    _line(
        'File "/home/ada/My Secret Project/train.py", line 9, in <module>',
        *("ada", "Secret Project"),
        stay=("train.py", "line 9"),
    ),
    _line("/scratch/groups/lovelace-lab/bert-v2 is full", "lovelace-lab"),
    _line("saving to '/data/home/ada'", "ada"),
    _line("/export/home/ada/.cache/huggingface/token exists", "ada"),
    _line("open('/content/drive/MyDrive/PatientScans/x.png')", "PatientScans"),
    _line("/var/spool/slurmd/job4711/slurm_script: line 9:  4242 Killed  python", stay=("Killed",)),
    _line("HOME=/home/ada", "ada"),
    _line("cwd: /root/clients/acme/run7", "acme"),
    _line("|    0   N/A  N/A      4242      C   /home/ada/venv/bin/python    8231MiB |", "ada",
          stay=("4242", "8231MiB")),
    _line(r"File \"C:\\Users\\ada\\work\\t.py\", line 4", "ada"),
)  # fmt: skip

PASSWORDS = (
    _line("DB_PASSWORD=hunter2", "hunter2"),
    _line("export MYSQL_PWD='c0rrect horse'", "c0rrect", "horse"),
    _line("python train.py --password hunter2 --epochs 3", "hunter2", stay=("--epochs 3",)),
    _line("python train.py --db-password=hunter2 --batch 32", "hunter2", stay=("--batch 32",)),
    _line("mysql -u root --password='tr0ub4dor &3' db", "tr0ub4dor", "&3"),
    _line('{"username": "ada", "password": "s3cr3t!", "lr": 0.1}', "s3cr3t", stay=("0.1",)),
    _line("config: {'passwd': 'hunter2', 'batch_size': 64}", "hunter2", stay=("64",)),
    _line("MLFLOW_TRACKING_PASSWORD: pa55word", "pa55word"),
    _line("[client] password = hunter2", "hunter2"),
    _line("smtp.login(user='ada', password='hunter2')", "hunter2"),
    _line("passphrase: correct horse battery", "correct"),
    _line("AUTH_SECRET=shh-its-me", "shh-its-me"),
    _line("client_secret: aB3~xYz.Q8", "aB3~xYz"),
    _line("sshpass -p hunter2 scp x y", "hunter2"),
    _line("curl -u ada:hunter2 http://x", "hunter2"),
)

CLOUD = (
    _keyed("aws_access_key_id = KEY", "AKIA" + _key("a", 16, BASE32)),
    _keyed("using KEY from the instance", "ASIA" + _key("b", 16, BASE32)),
    _keyed("aws_secret_access_key = KEY", _key("c", 40, BASE64)),
    _keyed("AWS_SESSION_TOKEN=KEY", "FwoGZXIvYXdz" + _key("d", 240, BASE64) + "=="),
    _keyed('"SecretAccessKey": "KEY",', _key("e", 40, BASE64)),
    _keyed("arn:aws:iam::KEY:role/train", _key("f", 12, DIGITS)),
    _keyed('"private_key_id": "KEY",', _key("g", 40, HEX)),
    _line(
        '"private_key": "-----BEGIN PRIVATE KEY-----\\n'
        + _key("h", 200, BASE64)
        + '\\n-----END PRIVATE KEY-----\\n",',
        _key("h", 200, BASE64)[:40],
        _key("h", 200, BASE64)[-20:],
    ),
    _line("GOOGLE_API_KEY=AIza" + _key("i", 35, URL64), _key("i", 35, URL64)),
    _keyed("maps answered 403 for KEY", "AIza" + _key("j", 35, URL64)),
    _keyed("Authorization: Bearer ya29.KEY", _key("k", 120, URL64)),
    _keyed("client GOCSPX-KEY rejected", _key("l", 28, URL64)),
    _keyed(
        "DefaultEndpointsProtocol=https;AccountName=adastore;AccountKey=KEY;EndpointSuffix=core",
        _key("m", 86, BASE64) + "==",
        "adastore",
    ),
    _keyed("az://train?sv=2022-11-02&sr=c&sig=KEY&se=2024", _key("n", 43, URL64)),
    _keyed("Endpoint=sb://x;SharedAccessKey=KEY", _key("o", 43, BASE64) + "="),
    _line("train-sa@acme-prod-17.iam.gserviceaccount.com denied", "acme-prod-17"),
    _keyed("AZURE_CLIENT_SECRET=KEY", "x7" + "Q8Q~" + _key("p", 34, URL64)),
    _keyed("dop_v1_KEY expired", _key("q", 64, HEX)),
    _keyed("DATABRICKS_TOKEN=KEY", "dapi" + _key("r", 32, HEX)),
    _keyed("connected with dapiKEY", _key("s", 32, HEX)),
)

HOSTS_OF_CODE = (
    _keyed("remote: invalid token KEY", "ghp_" + _key("t", 36)),
    _keyed("cloning with KEY", "github_pat_" + _key("u", 22) + "_" + _key("u2", 59)),
    _keyed("GITHUB_TOKEN=KEY", "ghs_" + _key("v", 36)),
    _keyed("pip install git+https://KEY@github.com/acme/private.git", "gho_" + _key("w", 36),
           "acme", "private"),
    _keyed("CI_JOB got KEY", "glpat-" + _key("x", 20, URL64)),
    _keyed("runner KEY registered", "glrt-" + _key("y", 20, URL64)),
    _keyed("https://oauth2:KEY@gitlab.com/acme/x.git", "glpat-" + _key("z", 20, URL64), "acme"),
    _keyed("bitbucket app password KEY", "ATBB" + _key("aa", 32)),
    _line("fatal: could not read from git@github.com:acme-corp/secret-net.git", "acme-corp",
          "secret-net"),
    _keyed("//registry.npmjs.org/:_authToken=KEY", "npm_" + _key("ab", 36)),
    _keyed("twine upload -u __token__ -p KEY", "pypi-AgEIcHlwaS5vcmc" + _key("ac", 120, URL64)),
    _keyed("docker login with KEY", "dckr_pat_" + _key("ad", 27, URL64)),
)  # fmt: skip

SERVICES = (
    _keyed("HF_TOKEN=KEY", "hf_" + _key("ae", 34)),
    _keyed("401 Client Error for token KEY", "hf_" + _key("af", 34)),
    _keyed("wandb: Appending key for api.wandb.ai: KEY", _key("ag", 40, HEX)),
    _keyed("wandb login KEY", _key("ah", 40, HEX)),
    _keyed("WANDB_API_K=KEY", _key("ai", 40, HEX)),
    _keyed("openai.AuthenticationError: Incorrect API key: KEY", "sk-" + _key("aj", 48)),
    _keyed("OPENAI uses KEY", "sk-proj-" + _key("ak", 74, URL64)),
    _keyed("x-api-key: KEY", "sk-ant-api03-" + _key("al", 93, URL64)),
    _keyed("slack: KEY", "xoxb-" + _key("am", 12, DIGITS) + "-" + _key("an", 24)),
    _keyed("posted to https://hooks.slack.com/services/T0AB12CD3/B0EF45GH6/KEY", _key("ao", 24)),
    _keyed("COMET_API: api_key=KEY", _key("ap", 25)),
    _keyed("NEPTUNE_API_TOKEN=KEY", "eyJ" + _key("aq", 180, URL64)),
    _keyed('kaggle.json {"username":"ada","key":"KEY"}', _key("ar", 32, HEX)),
    _keyed("KAGGLE_K=KEY", _key("as", 32, HEX)),
    _keyed("stripe KEY", "sk_live_" + _key("at", 24)),
    _keyed("sendgrid KEY", "SG." + _key("au", 22, URL64) + "." + _key("av", 43, URL64)),
    _keyed("telegram bot KEY started", _key("aw", 10, DIGITS) + ":AA" + _key("ax", 33, URL64)),
    _keyed("https://discord.com/api/webhooks/123456789012345678/KEY", _key("ay", 68, URL64)),
    _keyed("VAULT: hvs.KEY", _key("az", 90, URL64)),
    _keyed("replicate r8_KEY", _key("ba", 37)),
    _keyed("grafana KEY", "glsa_" + _key("bb", 32) + "_" + _key("bc", 8, HEX)),
)

HEADERS = (
    _line(f"Authorization: Bearer {_HEAD}.{_BODY}.{_SIGNATURE}", _BODY, _SIGNATURE),
    _line(f"jwt was {_HEAD}.{_BODY}.{_SIGNATURE}, expired", _BODY, _SIGNATURE),
    _keyed("authorization: Basic KEY", base64.b64encode(b"ada:hunter2!!").decode()),
    _keyed("Proxy-Authorization: bearer KEY", _key("bd", 20)),
    _keyed("'Authorization': 'Token KEY'", _key("be", 20)),
    _keyed("Cookie: session=KEY; theme=dark", _key("bf", 24)),
    _keyed("Set-Cookie: _xsrf=KEY; Path=/", _key("bg", 28, URL64)),
    _keyed("X-Auth-Token: KEY", _key("bh", 16)),
    _keyed("curl -H 'PRIVATE-TOKEN: KEY' x", _key("bi", 20)),
    _keyed("http://127.0.0.1:8888/lab?token=KEY", _key("bj", 48, HEX)),
)

URLS = (
    _line("postgresql://ada:hunter2@db.acme.corp:5432/runs", "ada", "hunter2", "acme"),
    _line("mongodb+srv://ada:p%40ss@cluster0.ab1cd.mongodb.net/x", "p%40ss", "ada"),
    _line("redis://:hunter2@10.1.2.3:6379/0", "hunter2", "10.1.2.3"),
    _line("amqp://guest:gu3st@rabbit//", "gu3st", "rabbit"),
    _line("jdbc:mysql://dbhost:3306/hr?user=ada&password=hunter2", "dbhost", "hunter2"),
    _line("loading s3://acme-patient-scans/train/x.tfrecord", "acme-patient-scans",
          stay=("x.tfrecord",)),
    _line("gs://acme-ml-private", "acme-ml-private"),
    _line("gsutil cp gs://acme-ml/ckpt-7/ada .", "acme-ml", "ada"),
    _line("hf://datasets/acme/secret-set/data.parquet", "acme", "secret-set"),
    _line("abfss://container@acmelake.dfs.core.windows.net/x", "container", "acmelake"),
    _line("https://acmestore.blob.core.windows.net/cont/model.h5", "acmestore", "cont/"),
    _line("https://acme-scans.s3.eu-west-1.amazonaws.com/a/b", "acme-scans"),
    _line("wandb: View run at https://wandb.ai/ada/secret-project/runs/1a2b3c4d", "ada",
          "secret-project", "1a2b3c4d"),
    _line("hdfs://namenode7:8020/user/ada/train", "namenode7", "ada"),
    _line("grpc://10.240.1.2:8470 is the TPU", "10.240", stay=("TPU",)),
    _line("HTTPS://Ada:Pw@Host.Example/x", "Ada", "Pw", "Host"),
    _line("wasbs://data@acme.blob.core.windows.net", "acme", "data@"),
)  # fmt: skip

MACHINES = (
    _line("Mar  3 12:34:56 gpubox17 kernel: Out of memory: Killed process 4242 (python3) "
          "total-vm:1kB, anon-rss:64000000kB", "gpubox17",
          stay=("Killed process 4242 (python3)", "anon-rss:64000000kB", "Mar  3 12:34:56")),
    _line("2024-03-03T12:34:56.123456+01:00 node-a17 kernel: [123.4] oom-kill:constraint=NONE",
          "node-a17", stay=("oom-kill:constraint",)),
    _line("Mar 13 02:04:06 ip-172-31-5-9 systemd[1]: train.service: A process was killed",
          "ip-172-31-5-9", stay=("was killed",)),
    _line("<4>Jan 23 01:02:03 lovelace-ws kernel: python invoked oom-killer: gfp_mask=0x100cca",
          "lovelace-ws", stay=("invoked oom-killer",)),
    _line("slurmstepd: error: *** JOB 4711 ON nid004711 CANCELLED AT 2024 DUE TO TIME LIMIT ***",
          "nid004711", stay=("DUE TO TIME LIMIT",)),
    _line("slurmstepd-gpu17: error: Detected 1 oom_kill event in StepId=4711.0", "gpu17",
          stay=("oom_kill event",)),
    _line("[gpu-node-3:04242] *** Process received signal ***", "gpu-node-3"),
    _line("mpirun noticed that process rank 3 with PID 0 on node cn0412 exited on signal 9",
          "cn0412", stay=("signal 9",)),
    _line("cuda_diagnostics.cc:168] retrieving CUDA diagnostic information for host: adasbox",
          "adasbox"),
    _line("cuda_diagnostics.cc:175] hostname: adasbox", "adasbox"),
    _line("(base) ada@lovelace-ws:~/x$ python train.py", "ada", "lovelace-ws"),
    _line("[ada@login01 project-y]$ sbatch run.sh", "ada", "login01"),
    _line("root@4f3c2d1e0b9a:/workspace# python t.py", "4f3c2d1e0b9a"),
    _line("connect to 192.168.17.4 port 22", "192.168"),
    _line("peer [2001:db8::ff00:42:8329]:2222 left", "ff00:42:8329"),
    _line("fe80::1ff:fe23:4567:890a is up", "fe23:4567"),
    _line("mail sent to ada.lovelace+ml@uni-example.ac.uk", "ada", "lovelace", "uni-example"),
    _line("link/ether 02:42:ac:11:00:02 brd", "ac:11:00"),
    _line("uid=1000(ada) gid=1000(ada)", "ada", stay=("1000",)),
    _line("User: ada  Job: 17", "ada", stay=("17",)),
    _line("USER=ada", "ada"),
    _line("sudo:      ada : TTY=pts/0 ; COMMAND=/bin/true", "ada :"),
    _line("ssh-rsa " + "AAAAB3NzaC1yc2E" + _key("bk", 120, BASE64) + " ada@box", "ada",
          _key("bk", 120, BASE64)[:30]),
    _line("GPU 0: Tesla T4 (UUID: GPU-8f6d2f1c-1b2c-4d3e-9f8a-0123456789ab)", "8f6d2f1c",
          stay=("Tesla T4",)),
)  # fmt: skip

SEEN = (
    # Forms from public reports of crashes, with other names: not in either half.
    _line(r"D:\Program Files\LovelaceLab\lib\site-packages\keras\engine\training.py in fit(self)",
          "Files", "LovelaceLab", stay=("site-packages/keras/engine/training.py in fit(self)",)),
    _line(r"D:\Top Secret\proj\train.py in run(self)", "Secret", "proj", stay=("train.py in run",)),
    _line("(train pid=123, ip=10.0.0.3) x", "10.0.0.3", stay=("pid=123",)),
    _line("wandb: Currently logged in as: ada (acme). Use `wandb login --relogin`", "ada", "acme"),
    _line("Running on host gpu017", "gpu017"),
    _line("Hostname gpu017", "gpu017"),
    _line("(abnn) ada@c002:~/SECRET_project/case1    $ ", "ada", "c002", "SECRET", "case1"),
    _line("Namespace(task='t2v', ckpt_dir='/opt/Secret-Studio/models', seed=3)", "Secret",
          stay=("seed=3",)),
    _line("[[node a/b (defined at /home/ada/x.py:3) ]]", "ada", stay=("[[node a/b", "x.py:3")),
    _line("# packages in environment at /home/ada/local/envs/tf:", "ada"),
)  # fmt: skip

LINES = (*PATHS, *PASSWORDS, *CLOUD, *HOSTS_OF_CODE, *SERVICES, *HEADERS, *URLS, *MACHINES)


def halves() -> tuple[list[Line], list[Line]]:
    """Return the lines of the development half and of the held-out half, drawn at random."""
    order = list(range(len(LINES)))
    random.Random(20261118).shuffle(order)
    middle = len(order) // 2
    return [LINES[n] for n in sorted(order[:middle])], [LINES[n] for n in sorted(order[middle:])]
