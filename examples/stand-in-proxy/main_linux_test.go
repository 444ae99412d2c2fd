// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/ambienttest"
	"github.com/meshcni/meshcni/ambient/zds"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/dataplanetest"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/internal/testing/testlog"
)

func TestMain(m *testing.M) { os.Exit(dataplanetest.RunTests(m)) }

// variables returns a function that looks variables up.
func variables(all map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, is := all[name]
		return value, is
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	document := `{"workloads":[{"name":"a","namespace":"shop","workloadIps":["10.0.0.1"],"protocol":"HBONE","services":{}}]}`
	path := filepath.Join(t.TempDir(), "pods.json")
	if err := os.WriteFile(path, []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}
	pods := []ambienttest.Workload{{Name: "a", Namespace: "shop", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, Tunnel: true}}
	for name, test := range map[string]struct {
		given map[string]string
		want  settings
	}{
		"none": {nil, settings{"/var/run/ztunnel/ztunnel.sock", 1337, 5 * time.Second, nil}},
		"all": {
			map[string]string{
				"PROXY_MODE": "shared", "INPOD_UDS": "/z", "PACKET_MARK": "7", "CONNECTION_TERMINATION_DEADLINE": "2s", "LOCAL_XDS": document,
				"FAKE_CA": "true", "NODE_NAME": "n", "ISTIO_META_CLUSTER_ID": "c", "TERMINATION_GRACE_PERIOD_SECONDS": "30",
			}, settings{"/z", 7, 2 * time.Second, pods},
		},
		"path":        {map[string]string{"INPOD_UDS": "/z", "LOCAL_XDS_PATH": path}, settings{"/z", 1337, 5 * time.Second, pods}},
		"grace":       {map[string]string{"INPOD_UDS": "/z", "TERMINATION_GRACE_PERIOD_SECONDS": "30"}, settings{"/z", 1337, 25 * time.Second, nil}},
		"short grace": {map[string]string{"INPOD_UDS": "/z", "TERMINATION_GRACE_PERIOD_SECONDS": "10"}, settings{"/z", 1337, 9 * time.Second, nil}},
		"no grace":    {map[string]string{"INPOD_UDS": "/z", "TERMINATION_GRACE_PERIOD_SECONDS": "0"}, settings{"/z", 1337, time.Second, nil}},
	} {
		got, err := readSettings(environment{getenv: variables(test.given)})
		if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(settings{}), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
	for variable, value := range map[string]string{
		"PROXY_MODE": "dedicated", "INPOD_PORT_REUSE": "false", "ENABLE_ORIG_SRC": "false", "IPV6_ENABLED": "false", "ENABLE_PROXY": "false",
		"PACKET_MARK": "0x539", "CONNECTION_TERMINATION_DEADLINE": "5", "TERMINATION_GRACE_PERIOD_SECONDS": "-1",
		"LOCAL_XDS": "workloads: []", "LOCAL_XDS_PATH": "/is/not/there",
	} {
		var stderr bytes.Buffer
		code := run(t.Context(), environment{getenv: variables(map[string]string{variable: value}), stderr: &stderr})
		if code != exitUsage || !strings.Contains(stderr.String(), variable) {
			t.Errorf("%s=%s: exit code %d, %s", variable, value, code, stderr.String())
		}
	}
	both := variables(map[string]string{"LOCAL_XDS": document, "LOCAL_XDS_PATH": path})
	if _, err := readSettings(environment{getenv: both}); err == nil || !strings.Contains(err.Error(), "both set") {
		t.Errorf("two documents: %v", err)
	}
}

func TestResolvers(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "resolv.conf")
	text := "# nameserver 10.0.0.1\nsearch example.com\nnameserver 10.0.0.2\nnameserver fe80::1%eth0\nnameserver 2001:db8::53 # second\nnameserver\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := systemResolvers(path)
	if got, want := fmt.Sprint(all), "[10.0.0.2:53 [2001:db8::53]:53]"; err != nil || got != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	if all, err := systemResolvers("/is/not/there"); err != nil || all != nil {
		t.Errorf("without the file: %s, %v", all, err)
	}
}

func TestCommandLine(t *testing.T) {
	t.Parallel()
	for line, test := range map[string]struct {
		code           int
		stdout, stderr string
	}{
		"-help":                            {exitTold, "Exit codes", ""},
		"help":                             {exitTold, "-exit-after", ""},
		"-version":                         {exitTold, "stand-in-proxy v1\n", ""},
		"version":                          {exitTold, "stand-in-proxy v1\n", ""},
		"-bogus":                           {exitUsage, "", "see stand-in-proxy -help"},
		"serve":                            {exitUsage, "", `no command "serve"`},
		"-exit-after 1 -hang-up-after 2":   {exitUsage, "", "exclude each other"},
		"-refuse-first -1":                 {exitUsage, "", "negative"},
		"-late-ack -1s":                    {exitUsage, "", "negative"},
		"-resolver 10.0.0.1 proxy ztunnel": {exitUsage, "", "resolver"},
	} {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), environment{args: strings.Fields(line), getenv: variables(nil), stdout: &stdout, stderr: &stderr, version: "v1"})
		if code != test.code || !strings.Contains(stdout.String(), test.stdout) || !strings.Contains(stderr.String(), test.stderr) {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q", line, code, stdout.String(), stderr.String())
		}
	}
	o, err := parse(environment{args: strings.Fields(
		"-no-hello -no-ack -late-ack 1s -refuse no -refuse-first 2 -unasked -exit-after 3 -twice -stdin -strict -resolver 10.0.0.1:53 proxy ztunnel")})
	want := options{
		faults: ambienttest.Faults{
			NoHello: true, NoAck: true, LateAck: time.Second, RefuseFirst: 2, Unasked: true, HangUpAfter: 3, Exit: true, Twice: true,
		}, refusal: "no", strict: true, stdin: true, resolvers: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:53")},
	}
	if got, want := fmt.Sprintf("%+v", o), fmt.Sprintf("%+v", want); err != nil || got != want {
		t.Errorf("all flags: got %s, %v, want %s", got, err, want)
	}
}

// TestREADME reads the manual's document, and looks for the lines of the log in it.
func TestREADME(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, document, _ := strings.Cut(string(text), "```json\n")
	document, _, _ = strings.Cut(document, "```")
	if pods, err := ambienttest.ParseWorkloads([]byte(document)); err != nil || len(pods) != 1 || !pods[0].Tunnel {
		t.Errorf("the document: %+v, %v", pods, err)
	}
	for _, kind := range []ambienttest.EventKind{
		ambienttest.Connected, ambienttest.Complete, ambienttest.Disconnected, ambienttest.Served, ambienttest.Refused, ambienttest.Ended,
	} {
		if !strings.Contains(string(text), "`"+string(kind)+"`") {
			t.Errorf("the manual lacks the line %q", kind)
		}
	}
}

// process is the program in this process, with an agent and a pod.
type process struct {
	t       *testing.T
	log     *testlog.Log
	signals chan os.Signal
	stdin   io.Closer
	probe   string
	code    chan int
	server  *zds.Server
	pod     *dataplanetest.Pod
	witness *ambienttest.Witness
}

// start runs the program with arguments, and an agent that has one pod, whose traffic goes to the
// proxy.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "z")
	server, err := zds.Listen(t.Context(), socket, zds.Options{Again: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	stdin, stdinEnds := io.Pipe()
	p := &process{
		t: t, log: testlog.New(), signals: make(chan os.Signal, 1), stdin: stdinEnds, probe: freeAddress(t), code: make(chan int, 1), server: server,
		pod: dataplanetest.NewPod(t, dataplanetest.PodOptions{Ports: []uint16{8080}}),
	}
	var running sync.WaitGroup
	running.Go(func() { server.Serve(ctx) })
	namespace, err := interception.OpenNetns(p.pod.Path(), interception.NetnsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if p.witness, err = ambienttest.NewWitness(namespace, ambient.IstioNumbers()); err != nil {
		t.Fatal(err)
	}
	if err := server.Set(zds.Workload{UID: "a", Name: "web", Namespace: "shop", ServiceAccount: "account"}, namespace); err != nil {
		t.Fatal(err)
	}
	env := environment{
		args: args, getenv: variables(map[string]string{"INPOD_UDS": socket, "CONNECTION_TERMINATION_DEADLINE": "1h"}), stdin: stdin,
		stdout: io.Discard, stderr: p.log, signals: p.signals, version: "v1", resolvConf: "/is/not/there", readiness: p.probe,
	}
	running.Go(func() { p.code <- run(ctx, env) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		if err := p.witness.Close(); err != nil {
			t.Error(err)
		}
		_ = namespace.Close() // nothing was written
	})
	plan, err := ambient.PodPlan(ambient.DefaultOverrides(false), ambient.IstioNumbers(), interception.Facts{IPv6: true, LoopbackIPv6: true}, "test-ambient")
	if err != nil {
		t.Fatal(err)
	}
	dataplane, err := nftables.New(nftables.Options{})
	if err == nil {
		err = dataplane.Apply(t.Context(), namespace, plan)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// freeAddress returns an address that no program listens at.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// logged waits for a line that contains all of these.
func (p *process) logged(words ...string) {
	p.t.Helper()
	if !p.log.Await(30*time.Second, func() bool {
		for line := range strings.Lines(p.log.String()) {
			found := 0
			for _, word := range words {
				if strings.Contains(line, word) {
					found++
				}
			}
			if found == len(words) {
				return true
			}
		}
		return false
	}) {
		p.t.Fatalf("no line has %q: %s", words, p.log)
	}
}

// ends waits until the program ends.
func (p *process) ends(want int) {
	p.t.Helper()
	if code := <-p.code; code != want {
		p.t.Errorf("exit code %d, want %d: %s", code, want, p.log)
	}
}

// ready returns the answer to a readiness probe.
func (p *process) ready() int {
	p.t.Helper()
	request, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, "http://"+p.probe+"/healthz/ready", http.NoBody)
	if err != nil {
		p.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	return response.StatusCode
}

func (p *process) listening(want bool) {
	p.t.Helper()
	if listening, err := p.witness.Listening(); err != nil || listening != want {
		p.t.Errorf("the proxy listens: %t, %v, want %t", listening, err, want)
	}
}

// awaitNoListener waits until the proxy has closed the last of its listeners. It closes one after
// the other, and until then a connection may be made that it never accepts.
func (p *process) awaitNoListener() {
	p.t.Helper()
	numbers := ambient.IstioNumbers()
	for listeners := 1; listeners > 0; {
		listeners = 0
		if err := p.pod.Do(func() error {
			for _, file := range []string{"tcp", "tcp6"} { // proc_net_tcp of the kernel's documentation
				text, err := os.ReadFile("/proc/thread-self/net/" + file)
				if err != nil {
					return err
				}
				for _, port := range []interception.Port{numbers.OutboundPort, numbers.InboundPort, numbers.TunnelPort} {
					listening := fmt.Sprintf(`:%04X [0-9A-F]+:0000 0A `, uint16(port))
					listeners += len(regexp.MustCompile(listening).FindAll(text, -1))
				}
			}
			return nil
		}); err != nil {
			p.t.Fatal(err)
		}
	}
}

// send makes a connection from the pod.
func (p *process) send(want dataplanetest.Verdict) {
	p.t.Helper()
	seen, err := p.pod.Send(p.t.Context(), dataplanetest.Probe{Dst: netip.MustParseAddrPort("198.51.100.7:443")})
	if err != nil || seen.Verdict != want {
		p.t.Errorf("a connection of the pod: %s, %v, want %s", seen, err, want)
	}
}

// TestDrain serves a pod, and drains on SIGTERM: no listener is left, and the program ends with the
// last connection.
func TestDrain(t *testing.T) {
	t.Parallel()
	p := start(t, "proxy", "ztunnel")
	p.logged("snapshot complete")
	p.logged("pod served", `"uid":"a"`, `"pod":"shop/web"`)
	if code := p.ready(); code != http.StatusOK {
		t.Errorf("the probe is answered %d", code)
	}
	p.send(dataplanetest.Accepted)
	if relayed, err := p.witness.Relayed(); err != nil || relayed != 1 {
		t.Errorf("%d connections are relayed, %v, want 1", relayed, err)
	}
	connection, err := p.pod.Connect(t.Context(), dataplanetest.Probe{Dst: netip.MustParseAddrPort("198.51.100.7:443")})
	if err != nil {
		t.Fatal(err)
	}
	p.signals <- syscall.SIGTERM
	p.logged("draining", "1h0m0s")
	p.logged("disconnected")
	p.awaitNoListener()
	if code := p.ready(); code != http.StatusInternalServerError {
		t.Errorf("while it drains the probe is answered %d", code)
	}
	p.send(dataplanetest.Refused)
	if verdict, err := connection.Say(t.Context(), dataplanetest.Opener); err != nil || verdict != dataplanetest.Accepted {
		t.Errorf("the older connection: %v, %v", verdict, err)
	}
	select {
	case code := <-p.code:
		t.Fatalf("the program has ended with %d before the connection", code)
	default:
	}
	if err := connection.Close(); err != nil {
		t.Error(err)
	}
	p.ends(exitTold)
	p.logged("pod ended", `"uid":"a"`)
}

// TestEnds ends the program in every other way, each at once.
func TestEnds(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args []string
		end  func(*process)
		code int
	}{
		"SIGINT":         {nil, func(p *process) { p.signals <- syscall.SIGINT }, exitTold},
		"standard input": {[]string{"-stdin"}, func(p *process) { _ = p.stdin.Close() }, exitTold},
		"-exit-after":    {[]string{"-exit-after", "1"}, func(*process) {}, exitDied},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, test.args...)
			p.logged("pod served")
			test.end(p)
			p.ends(test.code)
			p.logged("pod ended")
			p.listening(false)
		})
	}
}

// TestLosesListeners takes the listeners away by a signal: the proxy does not notice, and new
// connections are refused.
func TestLosesListeners(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.logged("pod served")
	p.logged("snapshot complete") // which may come after the pod: until then the proxy is not ready
	p.signals <- syscall.SIGUSR1
	p.awaitNoListener()
	p.send(dataplanetest.Refused)
	if code := p.ready(); code != http.StatusOK {
		t.Errorf("the probe is answered %d", code)
	}
}

// TestRefuses has a proxy that refuses each pod: it is not ready.
func TestRefuses(t *testing.T) {
	t.Parallel()
	p := start(t, "-refuse", "no room")
	p.logged("pod refused", "no room", "shop/web")
	p.logged("snapshot complete")
	if code := p.ready(); code != http.StatusInternalServerError {
		t.Errorf("the probe is answered %d", code)
	}
	p.listening(false)
}

// TestStrict hands the flag to the proxy.
func TestStrict(t *testing.T) {
	t.Parallel()
	env := environment{args: []string{"-strict"}, getenv: variables(nil), resolvConf: "/is/not/there"}
	o, err := parse(env)
	if err != nil || !proxyOptions(env, o, settings{}, nil).Strict || proxyOptions(env, options{}, settings{}, nil).Strict {
		t.Errorf("%+v, %v", o, err)
	}
}

// TestPrivileges starts the program as a user that may enter no namespace.
func TestPrivileges(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "stand-in-proxy")
	if output, err := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	command := exec.CommandContext(t.Context(), "setpriv", "--bounding-set", "-all", "--inh-caps", "-all", program)
	output, err := command.CombinedOutput()
	if command.ProcessState.ExitCode() != exitTrouble || !strings.Contains(string(output), "it takes CAP_") {
		t.Errorf("%v: %s, want that it names the capability", err, output)
	}
}

// TestResolver has a resolver by a flag: queries have a listener.
func TestResolver(t *testing.T) {
	t.Parallel()
	listens := func(p *process) (found bool) {
		err := p.pod.Do(func() error {
			_, err := new(net.Dialer).DialContext(t.Context(), "tcp", "127.0.0.1:15053")
			found = err == nil
			return nil
		})
		return found && err == nil
	}
	for _, want := range []bool{true, false} {
		var args []string
		if want {
			args = []string{"-resolver", "198.51.100.53:53"}
		}
		p := start(t, args...)
		p.logged("pod served")
		if got := listens(p); got != want {
			t.Errorf("%q: queries have a listener: %t", args, got)
		}
	}
}

// TestTrouble has a port for probes that another program uses.
func TestTrouble(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var stderr bytes.Buffer
	code := run(t.Context(), environment{getenv: variables(nil), stderr: &stderr, readiness: listener.Addr().String()})
	if code != exitTrouble || !strings.Contains(stderr.String(), "readiness") {
		t.Errorf("exit code %d, %s", code, stderr.String())
	}
}
