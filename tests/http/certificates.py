"""Certificates that the openssl command makes, for servers at 127.0.0.1."""

import ssl
import subprocess

KEY_OPTIONS = {
    "ecdsa": ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"],
    "rsa": ["-newkey", "rsa:2048"],
}


class Certificate:
    """A certificate that is its own authority. name: its subject."""

    def __init__(self, folder, name, kind="ecdsa"):
        self.certificate = folder / f"{name}.crt"
        self.key = folder / f"{name}.key"
        command = ["openssl", "req", "-x509", *KEY_OPTIONS[kind], "-nodes", "-days", "2", "-subj", f"/CN={name}",
                   "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
        command += ["-keyout", str(self.key), "-out", str(self.certificate)]
        subprocess.run(command, check=True, capture_output=True)

    def expire(self):
        """Makes it one that ended yesterday."""
        command = ["openssl", "x509", "-in", str(self.certificate), "-signkey", str(self.key), "-days", "-1"]
        expired = subprocess.run(command, check=True, capture_output=True).stdout
        self.certificate.write_bytes(expired)

    def flags(self):
        return ["--ssl-certfile", str(self.certificate), "--ssl-keyfile", str(self.key)]

    def client(self):
        return ssl.create_default_context(cafile=str(self.certificate))
