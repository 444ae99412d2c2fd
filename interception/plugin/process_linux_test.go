// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	cniversion "github.com/containernetworking/cni/pkg/version"
	"github.com/google/go-cmp/cmp"
)

// plugin is the path of the plugin, built as it is shipped.
func plugin(t testing.TB) string {
	t.Helper()
	path, err := buildPlugin()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// pluginWithIPTables is the path of the other build.
func pluginWithIPTables(t testing.TB) string {
	t.Helper()
	path, err := buildPluginWithIPTables()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var (
	buildPlugin             = sync.OnceValues(func() (string, error) { return build(pluginCommand, pluginName) })
	buildPluginWithIPTables = sync.OnceValues(func() (string, error) { return build(pluginCommand, pluginName+"-iptables", "iptables") })
)

// pluginCommand is the folder of the plugin that is shipped.
const pluginCommand = "../../examples/istio-cni"

// build builds a command with Go tags, as make build does, and returns its path.
func build(command, name string, tags ...string) (string, error) {
	path := filepath.Join(built, name)
	flags := "-s -w -X github.com/meshcni/meshcni/internal/version.version=test"
	builder := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-ldflags", flags, "-tags", strings.Join(tags, ","), "-o", path, command)
	builder.Env = append(os.Environ(), "CGO_ENABLED=0")
	return path, finish(builder)
}

// finish runs a command, whose error has its output.
func finish(cmd *exec.Cmd) error {
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, output)
	}
	return nil
}

// program is the path of the node's plugin.
func (n *node) program() string {
	n.t.Helper()
	if n.build != "" {
		return n.build
	}
	return plugin(n.t)
}

// exec runs a command of the plugin as a process.
func (n *node) exec(command string, args *skel.CmdArgs) outcome {
	n.t.Helper()
	cmd, stdout, stderr := n.command(command, args)
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		n.t.Fatal(err)
	}
	o := outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
	o.checkForSecrets(n.t)
	return o
}

// command is a command of the plugin, as a process that hasn't been started.
func (n *node) command(command string, args *skel.CmdArgs) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	n.t.Helper()
	cmd = exec.Command(n.program())
	cmd.Env = environment(command, args)
	cmd.Stdin = bytes.NewReader(args.StdinData)
	stdout, stderr = new(bytes.Buffer), new(bytes.Buffer)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	return cmd, stdout, stderr
}

// environment is the protocol's, with a proxy that is the runtime's and none of our business.
func environment(command string, args *skel.CmdArgs) []string {
	return []string{
		"CNI_COMMAND=" + command, "CNI_CONTAINERID=" + args.ContainerID, "CNI_NETNS=" + args.Netns, "CNI_IFNAME=" + args.IfName,
		"CNI_ARGS=" + args.Args, "CNI_PATH=" + args.Path, "HTTPS_PROXY=http://192.0.2.1:1",
	}
}

// TestSize is the budget for the size of the binary, which is read for every pod.
func TestSize(t *testing.T) {
	t.Parallel()
	for program, most := range map[string]float64{plugin(t): mostSize, pluginWithIPTables(t): mostSizeWithIPTables} {
		if size := mebibytes(t, program); size > most {
			t.Errorf("%s has %.2f MiB, and may have %.1f: see what it links (go tool nm -size)", program, size, most)
		}
	}
}

func TestProcessADD(t *testing.T) {
	t.Parallel()
	n := newNode(t, pod(t))
	previous := fmt.Sprintf(`{"prevResult": %s}`, result110)
	for range 2 {
		o := n.exec("ADD", n.add(`{"cniVersion": "1.1.0"}`, previous))
		o.mustSucceed(t)
		if diff := cmp.Diff(tree(t, []byte(result110)), tree(t, []byte(o.stdout))); diff != "" {
			t.Error(diff)
		}
		if tables := n.tables(); !slices.Equal(tables, []string{"istio-cni"}) {
			t.Errorf("got tables %v", tables)
		}
	}
}

func TestProcessADDFails(t *testing.T) {
	t.Parallel()
	n := newNode(t, answer(http.StatusForbidden, ""))
	e := n.exec("ADD", n.add()).mustFail(t, codeForbidden)
	if e.CNIVersion != "1.0.0" {
		t.Errorf("got %+v", e)
	}
	if tables := n.tables(); tables != nil {
		t.Errorf("rules were left: %v", tables)
	}
}

func TestProcessADDIntoTheNamespaceOfTheHost(t *testing.T) {
	t.Parallel()
	n := newNode(t, pod(t))
	args := n.add()
	args.Netns = "/proc/1/ns/net"
	n.exec("ADD", args).mustFail(t, codeHostNetns)

	// A pod that is left alone must not be there either, says skel. Standard output still has one
	// object only.
	args.Args = "K8S_POD_NAMESPACE=kube-system;K8S_POD_NAME=dns"
	o := n.exec("ADD", args)
	var e types.Error
	if err := json.Unmarshal([]byte(o.stdout), &e); err != nil || e.Code != types.ErrInvalidNetNS || o.code != 1 {
		t.Errorf("got %+v, %v", o, err)
	}
}

func TestProcessADDInParallel(t *testing.T) {
	t.Parallel()
	n := newNode(t, pod(t))
	args := n.add()
	var group sync.WaitGroup
	outcomes := make([]outcome, 8)
	for i := range outcomes {
		group.Go(func() { outcomes[i] = n.exec("ADD", args) })
	}
	group.Wait()
	for _, o := range outcomes {
		o.mustSucceed(t)
	}
	if tables := n.tables(); !slices.Equal(tables, []string{"istio-cni"}) {
		t.Errorf("got tables %v", tables)
	}
}

func TestProcessDELAlwaysSucceeds(t *testing.T) {
	t.Parallel()
	n := newNode(t, pod(t))
	n.exec("ADD", n.add()).mustSucceed(t)
	if err := os.Remove(n.kubeconfig()); err != nil {
		t.Fatal(err)
	}
	good := n.add()
	for name, args := range map[string]*skel.CmdArgs{
		"good":              good,
		"repeated":          good,
		"without netns":     {ContainerID: "abc", IfName: "eth0", Path: "/", StdinData: good.StdinData},
		"with gone netns":   {ContainerID: "abc", IfName: "eth0", Path: "/", Netns: "/var/run/netns/gone", StdinData: good.StdinData},
		"no configuration":  {ContainerID: "abc", IfName: "eth0", Path: "/"},
		"damaged":           {ContainerID: "abc", IfName: "eth0", Path: "/", StdinData: []byte(`{"cniVersion"`)},
		"of a later time":   {ContainerID: "abc", IfName: "eth0", Path: "/", StdinData: []byte(`{"cniVersion": "9.0.0", "name": "x"}`)},
		"wrong settings":    {ContainerID: "abc", IfName: "eth0", Path: "/", StdinData: n.configuration(`{"dataplane": 1}`)},
		"nothing at all":    {},
		"netns of the host": {ContainerID: "abc", IfName: "eth0", Path: "/", Netns: "/proc/1/ns/net", StdinData: good.StdinData},
	} {
		if o := n.exec("DEL", args); o.code != 0 || o.stdout != "" {
			t.Errorf("%s: got %+v", name, o)
		}
	}
	if tables := n.tables(); !slices.Equal(tables, []string{"istio-cni"}) {
		t.Errorf("DEL touched the namespace: got tables %v", tables)
	}
}

func TestProcessVERSION(t *testing.T) {
	t.Parallel()
	n := newNode(t, pod(t))
	o := n.exec("VERSION", &skel.CmdArgs{})
	o.mustSucceed(t)
	info, err := (&cniversion.PluginDecoder{}).Decode([]byte(o.stdout))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}, info.SupportedVersions()); diff != "" {
		t.Error(diff)
	}
}

// TestProcessCommandsOfVersions: a version has CHECK and STATUS or skel refuses them.
func TestProcessCommandsOfVersions(t *testing.T) {
	t.Parallel()
	n := newNode(t, pod(t))
	n.exec("ADD", n.add()).mustSucceed(t)
	for command, since := range map[string]string{"CHECK": "0.4.0", "STATUS": "1.1.0"} {
		for _, v := range cniversion.All.SupportedVersions() {
			o := n.exec(command, n.add(`{"cniVersion": "`+v+`"}`, `{"prevResult": `+resultOf(v)+`}`))
			if has, err := cniversion.GreaterThanOrEqualTo(v, since); err != nil {
				t.Fatal(err)
			} else if has {
				if o.code != 0 || o.stdout != "" {
					t.Errorf("%s %s: got %+v", command, v, o)
				}
				continue
			}
			var e types.Error
			if err := json.Unmarshal([]byte(o.stdout), &e); err != nil || e.Code != types.ErrIncompatibleCNIVersion || o.code != 1 {
				t.Errorf("%s %s: got %+v, %v", command, v, o, err)
			}
		}
	}
}

// TestProcessADDThatIsTerminated: a runtime that gives up gets an answer, and the namespace has no
// rules. One that gives up at once gets none, so it waits a little longer from time to time.
func TestProcessADDThatIsTerminated(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 100)
	n := newNode(t, func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	})
	for patience := soon; ; patience *= 2 {
		cmd, stdout, stderr := n.command("ADD", n.add())
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		<-asked
		<-time.After(patience)
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // its state tells
		if tables := n.tables(); tables != nil {
			t.Errorf("rules were left: %v", tables)
		}
		if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() && patience < time.Minute {
			continue
		}
		e := outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}.mustFail(t, codeTimeout)
		if !strings.Contains(e.Msg, "terminated") {
			t.Errorf("got message %q", e.Msg)
		}
		return
	}
}

func TestProcessWithoutCommandSaysWhatItIs(t *testing.T) {
	t.Parallel()
	n := newNode(t, pod(t))
	o := n.exec("", &skel.CmdArgs{})
	if o.code != 0 || o.stdout != "" || !strings.HasPrefix(o.stderr, "CNI plugin istio-cni of meshcni ") {
		t.Errorf("got %+v", o)
	}
}

func TestProcessRefusesWhatTheSpecificationRefuses(t *testing.T) {
	t.Parallel()
	n := newNode(t, pod(t))
	for _, test := range []struct {
		name, command string
		change        func(*skel.CmdArgs)
		code          uint
	}{
		{"unknown command", "FLY", func(*skel.CmdArgs) {}, types.ErrInvalidEnvironmentVariables},
		{"no container", "ADD", func(a *skel.CmdArgs) { a.ContainerID = "" }, types.ErrInvalidEnvironmentVariables},
		{"no netns", "ADD", func(a *skel.CmdArgs) { a.Netns = "" }, types.ErrInvalidEnvironmentVariables},
		{"no JSON", "ADD", func(a *skel.CmdArgs) { a.StdinData = []byte("{") }, types.ErrDecodingFailure},
		{"no name", "ADD", func(a *skel.CmdArgs) { a.StdinData = []byte("{}") }, types.ErrInvalidNetworkConfig},
		{"unknown version", "ADD", func(a *skel.CmdArgs) { a.StdinData = n.configuration(`{"cniVersion": "9.0.0"}`) }, types.ErrIncompatibleCNIVersion},
	} {
		args := n.add()
		test.change(args)
		o := n.exec(test.command, args)
		var e types.Error
		if err := json.Unmarshal([]byte(o.stdout), &e); err != nil || e.Code != test.code || e.Details == "" || o.code != 1 {
			t.Errorf("%s: got %+v, %v", test.name, o, err)
		}
	}
}
