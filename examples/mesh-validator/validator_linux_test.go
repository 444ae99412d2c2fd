// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/meshcni/meshcni/examples/internal/istiomesh"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/sidecar"
	"github.com/meshcni/meshcni/repair"
)

// The tests' redirects, for a validator that is the proxy's user and one that is not.
const (
	another = interception.UID(1337)
	itself  = interception.UID(0)
)

// asProxy makes root, the validator's user, the proxy's user.
func asProxy(more ...string) []string {
	return append([]string{"-proxy-uid", "0", "-check", "self"}, more...)
}

// TestValidator checks pods that are captured fully, not at all, in one direction, and in one
// family.
func TestValidator(t *testing.T) {
	t.Parallel()
	both, only4 := interception.Facts{IPv6: true}, interception.Facts{}
	redirect, tproxy := sidecar.ModeRedirect, sidecar.ModeTProxy
	onlyInbound := everything(redirect, another)
	onlyInbound.Outbound.Include = interception.PrefixSet{}
	onlyOutbound := everything(redirect, another)
	onlyOutbound.Inbound.Include = interception.PortSet{}
	withoutSelf := everything(redirect, itself)
	withoutSelf.Proxy.UIDs = interception.UIDs(another)
	outboundAndProbe := []string{"-probe-port", "15019"}
	const quick = "-timeout=4s" // for failing checks
	for name, test := range map[string]struct {
		captured   *sidecar.Redirect
		facts      interception.Facts
		privileged bool
		args       []string
		probe      string // from the node
		want       []string
	}{
		"outbound": {
			ptr(everything(redirect, another)), both, false, nil, "",
			[]string{"outbound ipv4 true", "outbound ipv6 true"},
		},
		"self": {
			ptr(everything(redirect, itself)), both, false, asProxy(), "",
			[]string{"inbound ipv4 true", "inbound ipv6 true"},
		},
		"outbound and probe": {
			ptr(everything(redirect, another)), both, false, outboundAndProbe, podV4 + ":15019",
			[]string{"inbound  true", "outbound ipv4 true", "outbound ipv6 true"},
		},
		"probe by IPv6": {
			ptr(everything(redirect, another)), both, false,
			[]string{"-check", "probe", "-families", "ipv6", "-probe-port", "15019"},
			"[" + podV6 + "]:15019",
			[]string{"inbound ipv6 true"},
		},
		"TPROXY": {
			ptr(everything(tproxy, another)), both, true, outboundAndProbe, podV4 + ":15019",
			[]string{"inbound  true", "outbound ipv4 true", "outbound ipv6 true"},
		},
		"TPROXY, self": {
			ptr(everything(tproxy, itself)), both, true, asProxy("-mode", "TPROXY"), "",
			[]string{"inbound ipv4 true", "inbound ipv6 true"},
		},
		"TPROXY, self, without privileges": {
			ptr(everything(tproxy, itself)), both, false, asProxy("-mode", "TPROXY"), "",
			[]string{"inbound ipv4 true", "inbound ipv6 true"},
		},
		"nothing is captured": {
			nil, both, false, append(outboundAndProbe, quick), podV4 + ":15019",
			[]string{"inbound  false", "outbound ipv4 false", "outbound ipv6 false"},
		},
		"nothing is captured, self":   {nil, both, false, asProxy(quick), "", []string{"inbound ipv4 false", "inbound ipv6 false"}},
		"nothing is captured, TPROXY": {nil, both, false, asProxy("-mode", "TPROXY", quick), "", []string{"inbound ipv4 false", "inbound ipv6 false"}},
		"outbound is broken": {
			&onlyInbound, both, false, append(outboundAndProbe, quick), podV4 + ":15019",
			[]string{"inbound  true", "outbound ipv4 false", "outbound ipv6 false"},
		},
		"inbound is broken": {
			&onlyOutbound, both, false, append(outboundAndProbe, quick), podV4 + ":15019",
			[]string{"inbound  false", "outbound ipv4 true", "outbound ipv6 true"},
		},
		"self is broken": {&withoutSelf, both, false, asProxy(quick), "", []string{"inbound ipv4 false", "inbound ipv6 false"}},
		"IPv6 is broken": {
			ptr(everything(redirect, another)), only4, false, append(outboundAndProbe, quick), podV4 + ":15019",
			[]string{"inbound  true", "outbound ipv4 true", "outbound ipv6 false"},
		},
		"IPv6 is broken, self": {
			ptr(everything(redirect, itself)), only4, false, asProxy(quick), "", []string{"inbound ipv4 true", "inbound ipv6 false"},
		},
		"IPv6 is broken, probe": {
			ptr(everything(redirect, another)), only4, false,
			[]string{"-check", "probe", "-families", "ipv6", "-probe-port", "15019", quick},
			"[" + podV6 + "]:15019",
			[]string{"inbound ipv6 false"},
		},
		"nobody probes": {
			ptr(everything(redirect, another)), both, false,
			[]string{"-check", "probe", "-probe-port", "15019", quick},
			"",
			[]string{"inbound  false"},
		},
		// The proxy's own port is reachable from outside, but a direct connection to it proves
		// nothing.
		"the port is merely reachable": {
			nil, both, false, []string{"-check", "probe", "-probe-port", "15019", quick}, podV4 + ":15006", []string{"inbound  false"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPod(t)
			if test.captured != nil {
				p.capture(*test.captured, test.facts)
			}
			v := p.start(test.privileged, test.args...)
			stop := func() {}
			if test.probe != "" {
				stop = p.kubelet(test.probe)
			}
			t.Cleanup(stop)
			r := v.report(t)
			compareReport(t, v, r, test.want)
			stop()
			if goesOn := p.goesOn.Load(); goesOn != (test.probe != "" && r.Captured) {
				t.Errorf("captured: %t, and the kubelet goes on with the pod: %t", r.Captured, goesOn)
			}
		})
	}
}

// TestRouterWithoutRoute makes the node answer that it has no route. The pod has one, so the check
// was made, and found nothing captured.
func TestRouterWithoutRoute(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	for _, name := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
		if err := p.node.Do(func() error { return os.WriteFile("/proc/sys/net/"+name, []byte("1"), 0) }); err != nil {
			t.Fatal(err)
		}
	}
	v := p.start(false, "-outbound-to", "198.51.100.1:9,[2001:db8:5::1]:9", "-timeout=4s")
	compareReport(t, v, v.report(t), []string{"outbound ipv4 false", "outbound ipv6 false"})
}

func ptr(r sidecar.Redirect) *sidecar.Redirect { return &r }

// compareReport compares a report with the wanted one, and with the exit code, the message and
// package repair's diagnosis.
func compareReport(t *testing.T, v *validator, r report, want []string) {
	t.Helper()
	captured := true
	var got []string
	code := v.code(t)
	message, err := os.ReadFile(v.terminationLog)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range r.Checks {
		word := " true"
		if !c.Captured {
			captured, word = false, " false"
			if text := c.Direction + " " + string(c.Family); !strings.Contains(string(message), strings.TrimSpace(text)) {
				t.Errorf("the message %q does not say that %s failed", message, text)
			}
		}
		got = append(got, c.Direction+" "+string(c.Family)+word)
	}
	if !slices.Equal(got, want) || r.Captured != captured {
		t.Errorf("got %v, %t: %+v", got, r.Captured, r)
	}
	switch {
	case captured && (code != exitCaptured || len(message) > 0):
		t.Errorf("captured: code %d, message %q", code, message)
	case !captured && (code != exitNotCaptured || string(message) != v.stderr.String()):
		t.Errorf("not captured: code %d, message %q, standard error %q", code, message, &v.stderr)
	}
	if broken := diagnosed(int32(code), string(message)).Verdict == repair.Broken; broken == captured {
		t.Errorf("diagnosed as broken: %t, captured: %t", broken, captured)
	}
}

// diagnosed returns package repair's diagnosis of the validator's end.
func diagnosed(code int32, message string) repair.Finding {
	const name = "mesh-validator"
	end := &repair.Termination{ExitCode: code, Reason: "Error", Message: message}
	return repair.Diagnose(repair.Pod{
		Pod: interception.Pod{
			Namespace: "shop", Name: "cart-0", UID: "1c6b", Annotations: map[string]string{"sidecar.istio.io/status": "{}"},
			Containers: []interception.Container{{Name: name, Init: true}, {Name: "istio-proxy", Args: []string{"proxy", "sidecar"}}},
		},
		NodeName: "node-1", Phase: repair.PhasePending,
		Statuses: []repair.ContainerStatus{{Name: name, Init: true, State: repair.ContainerState{Terminated: end}}},
	}, repair.Criteria{
		Mesh: istiomesh.Mesh(), Validators: []repair.Validator{repair.MeshValidator()},
	})
}

// TestStay closes the ports when all is captured, for the proxy to take, and ends on a signal.
func TestStay(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	p.capture(everything(sidecar.ModeRedirect, another), interception.Facts{IPv6: true})
	v := p.start(false, "-stay", "-check", "outbound")
	if r := v.report(t); !r.Captured {
		t.Errorf("got %+v", r)
	}
	for taken := true; taken; { // it closes the ports after the report
		_ = p.pod.Do(func() error {
			listener, err := net.Listen("tcp4", ":15006")
			if err == nil {
				taken = false
				err = listener.Close()
			}
			return err
		})
	}
	if err := v.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := v.code(t); code != exitCaptured {
		t.Errorf("exit code %d: %s", code, &v.stderr)
	}
}

// TestTrouble checks that errors exit with another code than "not captured", so that no pod is
// deleted for them.
func TestTrouble(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	var listener net.Listener
	if err := p.pod.Do(func() (err error) {
		listener, err = net.Listen("tcp4", ":15006")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	v := p.start(false)
	if code := v.code(t); code != exitTrouble || !strings.Contains(v.stderr.String(), "must not run yet") {
		t.Errorf("the proxy runs: exit code %d: %s", code, &v.stderr)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	eth0, err := p.pod.Netlink().LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	routes, err := p.pod.Netlink().RouteList(eth0, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, route := range routes {
		if route.Gw != nil {
			if err := p.pod.Netlink().RouteDel(&route); err != nil {
				t.Fatal(err)
			}
		}
	}
	v = p.start(false)
	if code := v.code(t); code != exitTrouble || !strings.Contains(v.stderr.String(), "no route to 192.0.2.1:15002") {
		t.Errorf("no route: exit code %d: %s", code, &v.stderr)
	}
}

// TestUsage refuses meaningless command lines.
func TestUsage(t *testing.T) {
	t.Parallel()
	for args, test := range map[string]struct {
		code int
		text string
	}{
		"-help":                                {exitCaptured, "native sidecar"},
		"-version":                             {exitCaptured, "mesh-validator v9"},
		"-loud":                                {exitUsage, "-loud"},
		"more":                                 {exitUsage, `"more"`},
		"-check all":                           {exitUsage, `"all"`},
		"-check self,self -proxy-uid 7":        {exitUsage, "twice"},
		"-check self":                          {exitUsage, "not the proxy"},
		"-check outbound -proxy-uid 7":         {exitUsage, "is the proxy's"},
		"-check outbound -proxy-gid 8":         {exitUsage, "is the proxy's"},
		"-check probe":                         {exitUsage, "-probe-port"},
		"-families ipv5":                       {exitUsage, "ipv5"},
		"-families ipv4,ipv4":                  {exitUsage, "ipv4,ipv4"},
		"-outbound-to 192.0.2.1":               {exitUsage, "192.0.2.1"},
		"-outbound-to 127.0.0.1:80":            {exitUsage, "outside of the pod"},
		"-outbound-to 192.0.2.1:80,1.1.1.1:80": {exitUsage, "one address of each family"},
		"-outbound-port 0":                     {exitUsage, "from 1 to 65535"},
		"-outbound-port 15006":                 {exitUsage, "another one"},
		"-mode NONE":                           {exitUsage, "NONE"},
		"-o yaml":                              {exitUsage, "yaml"},
		"-timeout 0s":                          {exitUsage, "above zero"},
	} {
		var out bytes.Buffer
		env := environment{args: strings.Fields(args), stdout: &out, stderr: &out, version: "v9", uid: 7, gid: 8}
		if code := run(t.Context(), env); code != test.code || !strings.Contains(out.String(), test.text) {
			t.Errorf("%s: exit code %d, want %d, with %q: %s", args, code, test.code, test.text, &out)
		}
	}
}
