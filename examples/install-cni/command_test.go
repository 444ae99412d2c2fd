// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/examples/install-cni/internal/settings"
)

func TestExitCodes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args   string
		env    map[string]string
		code   int
		stdout string
		stderr string
	}{
		{args: "--help", code: exitOK, stdout: "Exit codes: 0"},
		{args: "help uninstall", code: exitOK, stdout: "install-cni uninstall"},
		{args: "uninstall --help", code: exitOK, stdout: "byte for byte"},
		{args: "--version", code: exitOK, stdout: "install-cni v1.2.3-test"},
		{args: "status --help", code: exitOK, stdout: "3 something is missing"},
		{args: "install --help", code: exitOK, stdout: "--dry-run"},
		{args: "uninstall --output=xml", code: exitUsage, stderr: "write table or json"},
		{args: "config --help", code: exitOK, stdout: "where it comes from"},
		{args: "config", code: exitOK, stdout: "mounted-cni-net-dir                        /host/etc/cni/net.d"},
		{args: "config --output=yaml", code: exitUsage, stderr: "write table or json"},
		{args: "config", env: map[string]string{"FAIL_POLICY": "ajar"}, code: exitUsage, stdout: "environment FAIL_POLICY, which is wrong", stderr: "write one of"},
		{args: "config", env: map[string]string{"EXCLUDE_NAMESPACE": "a"}, code: exitOK, stderr: "did you mean EXCLUDE_NAMESPACES"},
		{args: "__complete --fail-policy c", code: exitOK, stdout: "closed\nopen\n:4"},
		{args: "__complete status --skip-tls-verify=", code: exitOK, stdout: "true\nfalse\n:4"},
		{args: "__complete --mounted-cni-net-dir /", code: exitOK, stdout: ":0"},
		{args: "__complete sta", code: exitOK, stdout: "status\tCompare"},
		{args: "__complete config -o j", code: exitOK, stdout: "json"},
		{args: "completion bash", code: exitOK, stdout: "bash completion"},
		{args: "completion", code: exitOK, stdout: "Available Commands:\n  bash"},
		{args: "completion foo", code: exitUsage, stderr: `completion: "foo" is not a shell that is known here; write one of bash, fish, powershell, zsh`},
		{args: "--no-such-flag", code: exitUsage, stderr: "unknown flag: --no-such-flag"},
		{args: "uninstall --no-such-flag", code: exitUsage, stderr: "unknown flag: --no-such-flag"},
		{args: "instal", code: exitUsage, stderr: `"instal" is neither a command nor a flag; did you mean install`},
		{args: "uninstall now", code: exitUsage, stderr: `"now" is neither a command nor a flag`},
		{args: "--kubeconfig-mode=600", code: exitUsage, stderr: "0600"},
		{args: "--chained-cni-plugin=false --install-mode=auto", code: exitUsage, stderr: "chained-cni-plugin=false asks for standalone"},
		{args: "--install-mode=both", code: exitUsage, stderr: "write one of"},
		{env: conf("../x.conf"), code: exitUsage, stderr: "environment CNI_CONF_NAME"},
		{args: "uninstall", env: map[string]string{"MOUNTED_CNI_NET_DIR": "net.d"}, code: exitUsage, stderr: "environment MOUNTED_CNI_NET_DIR"},
	} {
		t.Run(test.args, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr bytes.Buffer
			n := newNode(t)
			env := n.environment(&stderr, strings.Fields(test.args)...)
			env.stdout = &stdout
			env.environ = environ(test.env)
			if code := run(context.Background(), env); code != test.code {
				t.Errorf("exit code %d, want %d", code, test.code)
			}
			if !strings.Contains(stdout.String(), test.stdout) || !strings.Contains(stderr.String(), test.stderr) {
				t.Errorf("stdout:\n%s\nstderr:\n%s\nwant %q and %q", &stdout, &stderr, test.stdout, test.stderr)
			}
			if test.code != exitOK && strings.Contains(stderr.String(), "Flags:") {
				t.Errorf("an error is buried in the help:\n%s", &stderr)
			}
		})
	}
}

func TestConfigAsJSON(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	n := newNode(t)
	n.env["NATIVE_NFTABLES"] = "maybe"
	env := n.environment(&stderr, "config", "-o", "json", "--fail-policy=open")
	env.stdout = &stdout
	if code := run(context.Background(), env); code != exitUsage {
		t.Errorf("exit code %d: %s", code, &stderr)
	}
	var report settings.Report
	if err := json.Unmarshal(stdout.Bytes(), &report); err != nil {
		t.Fatal(err)
	}
	got := map[string]settings.ReportedValue{}
	for _, value := range report.Settings {
		got[value.Name] = value
	}
	for _, want := range []settings.ReportedValue{
		{Name: "fail-policy", Value: "open", Source: settings.Source{Kind: "flag", Name: "fail-policy"}, Live: true},
		{Name: "pod-namespace", Value: "istio-system", Source: settings.Source{Kind: "environment", Name: "POD_NAMESPACE"}},
		{Name: "log_as_json", Value: "false", Default: "false", Source: settings.Source{Kind: "default"}},
		{
			Name: "native-nftables", Value: "maybe", Default: "false", Live: true, Source: settings.Source{Kind: "environment", Name: "NATIVE_NFTABLES"},
			Error: `invalid settings: environment NATIVE_NFTABLES="maybe": not a boolean; write true or false`,
		},
	} {
		if diff := cmp.Diff(want, got[want.Name]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", want.Name, diff)
		}
	}
}

func TestHelpHidesWhatHasNoEffect(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	run(context.Background(), newNode(t).environment(&out, "--help"))
	for _, row := range settings.All() {
		if got := strings.Contains(out.String(), "--"+row.Name+" "); got == row.Inert {
			t.Errorf("help has --%s: %v, inert: %v", row.Name, got, row.Inert)
		}
	}
}

func TestSettingsWithoutEffectAreNamed(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.env["REPAIR_RUN_AS_DAEMON"], n.env["AMBIENT_DNS_CAPTURE"] = "false", "true"
	p := n.start("--ctrlz_port=9877", "--log_target=stderr")
	p.waitAnswer(503, "waiting")
	for _, want := range []string{"no effect yet", "repair-run-as-daemon", "ctrlz_port", "log_target"} {
		if !strings.Contains(p.log.String(), want) {
			t.Errorf("the log doesn't say %q:\n%s", want, p.log)
		}
	}
	// Without ambient mode it has no effect in Istio's daemon either.
	if strings.Contains(p.log.String(), "ambient-dns-capture") {
		t.Errorf("the log warns of a setting of ambient mode:\n%s", p.log)
	}
}

func TestLogAsJSON(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	p := n.start("--log_as_json", "--log_output_level=info")
	p.waitAnswer(503, "waiting")
	p.end()
	for line := range strings.Lines(p.log.String()) {
		var record struct{ Time, Level, Msg string }
		if err := json.Unmarshal([]byte(line), &record); err != nil || record.Time == "" || record.Level == "" || record.Msg == "" {
			t.Errorf("log line %q: %v", line, err)
		}
	}
}

func TestPortInUse(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	var out bytes.Buffer
	env := n.environment(&out)
	env.listen = func(context.Context, string, string) (net.Listener, error) {
		return nil, errors.New("address already in use")
	}
	if code := run(context.Background(), env); code != exitFailure || !strings.Contains(out.String(), "health-address") {
		t.Errorf("exit code %d:\n%s", code, &out)
	}
}

func TestHealthServerThatFailsIsStartedAgain(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "10-calico.conflist", calico, 0o644)
	listens := 0
	p := n.startListening(func(ctx context.Context, network, address string) (net.Listener, error) {
		listener, err := (&net.ListenConfig{}).Listen(ctx, network, address)
		if listens++; err == nil && listens == 1 {
			return listener, listener.Close()
		}
		return listener, err
	})
	<-p.health // of the closed listener
	p.waitReady()
	if text := p.log.String(); !strings.Contains(text, "serve health on 127.0.0.1") {
		t.Errorf("log:\n%s", text)
	}
}

func TestNoBinaryDirectory(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "10-calico.conflist", calico, 0o644)
	if err := os.RemoveAll(n.binDir); err != nil {
		t.Fatal(err)
	}
	p := n.start()
	p.waitAnswer(503, "installer: lock the node's CNI binary directory: open "+n.binDir+": no such file or directory; mount")
	if err := os.Mkdir(n.binDir, 0o755); err != nil {
		t.Fatal(err)
	}
	p.waitReady()
}
