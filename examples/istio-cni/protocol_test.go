// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	cniversion "github.com/containernetworking/cni/pkg/version"
	"github.com/google/go-cmp/cmp"
)

// served is what came of a call: what the plugin was called with, and what was said.
type served struct {
	Command        string
	Args           cmdArgs
	Failure        *types.Error
	Stdout, Stderr string
}

// protocolCase is one call by a runtime.
type protocolCase struct {
	environment map[string]string
	stdin       string
	answer      error // of the command
}

func (c protocolCase) about() string {
	if c.environment["CNI_COMMAND"] == "" {
		return "about"
	}
	return ""
}

func (s *served) function(command string, answer error) func(cmdArgs) error {
	return func(args cmdArgs) error {
		s.Command, s.Args = command, args
		return answer
	}
}

// byPlugin has the plugin serve the call.
func (c protocolCase) byPlugin() served {
	var got served
	var stdout, stderr strings.Builder
	call := runtimeCall{func(key string) string { return c.environment[key] }, strings.NewReader(c.stdin), &stdout, &stderr}
	function := func(command string) func(*cmdArgs) error {
		return func(args *cmdArgs) error { return got.function(command, c.answer)(*args) }
	}
	got.Failure = call.serve(commands{Add: function("ADD"), Check: function("CHECK"), GC: function("GC"), Status: function("STATUS")}, c.about())
	got.Stdout, got.Stderr = stdout.String(), stderr.String()
	return got
}

// bySkel has package skel serve it, which knows this process's environment and files alone.
func (c protocolCase) bySkel(t *testing.T) served {
	t.Helper()
	var want served
	function := func(command string) func(*skel.CmdArgs) error {
		return func(a *skel.CmdArgs) error {
			return want.function(command, c.answer)(cmdArgs{a.ContainerID, a.Netns, a.IfName, a.Args, a.Path, a.NetnsOverride, a.StdinData})
		}
	}
	for key, value := range c.environment {
		t.Setenv(key, value)
	}
	dir := t.TempDir()
	files := make([]*os.File, 3)
	for i, file := range []**os.File{&os.Stdin, &os.Stdout, &os.Stderr} {
		var err error
		if files[i], err = os.Create(filepath.Join(dir, fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
		defer func(was *os.File) { *file = was }(*file)
		*file = files[i]
	}
	write(t, files[0], c.stdin)
	want.Failure = skel.PluginMainFuncsWithError(skel.CNIFuncs{
		Add: function("ADD"), Check: function("CHECK"), GC: function("GC"), Status: function("STATUS"),
	}, cniversion.All, c.about())
	want.Stdout, want.Stderr = contents(t, files[1]), contents(t, files[2])
	return want
}

func write(t *testing.T, file *os.File, text string) {
	t.Helper()
	_, err := file.WriteString(text)
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func contents(t *testing.T, file *os.File) string {
	t.Helper()
	text, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// protocolCases vary one thing at a time, for each command. DEL never gets here.
func protocolCases() map[string]protocolCase {
	const conf = `{"cniVersion": "1.1.0", "name": "net"}`
	cases := map[string]protocolCase{}
	for _, command := range []string{"", "ADD", "CHECK", "GC", "STATUS", "VERSION", "OTHER"} {
		usual := map[string]string{
			"CNI_COMMAND": command, "CNI_CONTAINERID": "abc_1.2-3", "CNI_NETNS": "/var/run/netns/none", "CNI_IFNAME": "eth0", "CNI_ARGS": "A=b",
			"CNI_PATH": "/opt/cni/bin", "CNI_NETNS_OVERRIDE": "",
		}
		add := func(name string, c protocolCase) { cases[command+" "+name] = c }
		add("usual", protocolCase{usual, conf, nil})
		add("fails", protocolCase{usual, conf, errors.New("some error")})
		add("fails with a code", protocolCase{usual, conf, types.NewError(120, "message", "details")})
		for key, values := range map[string][]string{
			"CNI_CONTAINERID": {"", "-a", "_a", "a b", "a/b", "é", "aé", "a\n", "9", "."}, "CNI_NETNS": {"", "/proc/self/ns/net"},
			"CNI_IFNAME": {"", ".", "..", "a/b", "a:b", "a b", "é\u00a0", "fifteen-letters", "sixteen--letters", "\xff"},
			"CNI_ARGS":   {""}, "CNI_PATH": {""}, "CNI_NETNS_OVERRIDE": {"1", "true", "TRUE", "0"},
		} {
			for _, value := range values {
				other := maps.Clone(usual)
				other[key] = value
				add(key+" is "+value, protocolCase{other, conf, nil})
			}
		}
		own := maps.Clone(usual)
		own["CNI_NETNS"], own["CNI_NETNS_OVERRIDE"] = "/proc/self/ns/net", "True"
		add("own namespace, meant", protocolCase{own, conf, nil})
		nothing := map[string]string{"CNI_COMMAND": command}
		for key := range usual {
			nothing[key] += ""
		}
		add("without any variable", protocolCase{nothing, conf, nil})
		for _, stdin := range []string{
			"", "{", "null", "[]", `{}`, `{"name": ""}`, `{"name": 1}`, `{"name": null}`, `{"name": "a b"}`, `{"name": "-"}`, `{"NAME": "net"}`, `{"name": "net"} x`,
			`{"name": "net", "name": "n e t"}`, `{"name": "net"}`, `{"name": "net", "cniVersion": ""}`, `{"name": "net", "cniVersion": 1}`,
			`{"name": "net", "cniVersion": null}`, `{"name": "net", "cniVersion": "x"}`, `{"name": "net", "cniVersion": "1.1.0.0"}`,
			`{"name": "net", "cniVersion": "9.9.9"}`, `{"name": "net", "cniVersion": "0.4.1"}`, `{"name": "net", "cniVersion": "0.3.1"}`,
			`{"name": "net", "cniVersion": "0.4.0"}`, `{"name": "net", "cniVersion": "1.0.0"}`, `{"name": "net", "CNIVersion": "0.3.0"}`,
		} {
			add("with "+stdin, protocolCase{usual, stdin, nil})
		}
	}
	return cases
}

// TestProtocolIsSkels compares what the plugin does with what package skel does. Not in parallel: skel takes the environment and the standard files of the
// process.
func TestProtocolIsSkels(t *testing.T) { //nolint:paralleltest // see above
	for name, c := range protocolCases() {
		got, want := c.byPlugin(), c.bySkel(t)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-skel +plugin):\n%s", name, diff)
		}
	}
}
