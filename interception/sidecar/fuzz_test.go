// SPDX-License-Identifier: Apache-2.0

package sidecar

import (
	"errors"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception"
)

// FuzzIstioParse gives Parse and Plan arbitrary annotations: they never panic, an error names its
// key, and the kernel's comments can hold the text of every plan.
func FuzzIstioParse(f *testing.F) {
	for _, seed := range [][6]string{
		{"REDIRECT", "*", "", "*", "15020", "15020"},
		{"TPROXY", "10.0.0.0/8, 2001:db8::/32", "10.1.0.0/16", "80,443", "3306", "*"},
		{"REDIRECT", "127.0.0.0/8", "0.0.0.0/0,::/0", "", "*", ""},
		{"NONE", "::ffff:1.2.3.4/128", "10.0.0.0/8,", "0", "65536", "80;reboot"},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3], seed[4], seed[5], int64(1337), true)
	}
	f.Fuzz(func(t *testing.T, mode, include, exclude, inInclude, inExclude, outPorts string, user int64, v6 bool) {
		pod := meshPod(
			annotate("sidecar.istio.io/interceptionMode", mode),
			annotate(trafficPrefix+"includeOutboundIPRanges", include), annotate(trafficPrefix+"excludeOutboundIPRanges", exclude),
			annotate(trafficPrefix+"includeInboundPorts", inInclude), annotate(trafficPrefix+"excludeInboundPorts", inExclude),
			annotate(trafficPrefix+"excludeOutboundPorts", outPorts),
			func(p *interception.Pod) { p.Containers[2].RunAsUser = &user },
		)
		r, _, err := Istio().Parse(pod)
		if err != nil {
			var parse *interception.ParseError
			if !errors.As(err, &parse) || parse.Source.Key == "" || !strings.Contains(err.Error(), parse.Source.Key) {
				t.Fatalf("error does not name its key: %v", err)
			}
			return
		}
		plan, err := Plan(r, interception.Facts{IPv6: v6}, "test-mesh")
		if err != nil {
			if !errors.Is(err, interception.ErrUnsupported) {
				t.Fatalf("what Parse accepts is no plan: %v", err)
			}
			return
		}
		for _, rule := range plan.Rules() {
			if len(rule.Comment()) > 128 {
				t.Fatalf("comment too long: %q", rule.Comment())
			}
		}
	})
}
