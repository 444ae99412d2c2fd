// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"fmt"
	"strings"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/choice"
	"github.com/meshcni/meshcni/interception/netfacts"
)

// plans are that of a pod that uses all that a pod may, and that of one as they come. They are for IPv6, too, where the kernel has that.
func (c *Chooser) plans() (all, usual *interception.Plan, err error) {
	scratch := c.options.Scratch
	if scratch == nil {
		scratch = choice.NewScratch
	}
	ns, err := scratch()
	if err != nil {
		return nil, nil, fmt.Errorf("make a network namespace for a trial: %w", err)
	}
	defer ns.Close() //nolint:errcheck // nothing is written through it
	facts, err := netfacts.Read(ns)
	if err != nil {
		return nil, nil, err
	}
	demands, err := c.options.Mesh.Plan(demanding(), facts)
	if err != nil {
		return nil, nil, err
	}
	plain, err := c.options.Mesh.Plan(interception.Pod{Containers: []interception.Container{{Name: "istio-proxy"}}}, facts)
	return demands.Plan, plain.Plan, err
}

// demanding is a pod with every setting.
func demanding() interception.Pod {
	var prefixes []string
	for i := range 16 { // so many that they are a set
		prefixes = append(prefixes, fmt.Sprintf("192.0.2.%d/32,2001:db8::%d/128", 2*i, 2*i))
	}
	return interception.Pod{
		Annotations: map[string]string{
			"sidecar.istio.io/interceptionMode":                "TPROXY",
			"traffic.sidecar.istio.io/includeOutboundIPRanges": "10.0.0.0/8,fd00::/8",
			"traffic.sidecar.istio.io/excludeOutboundIPRanges": strings.Join(prefixes, ","),
			"traffic.sidecar.istio.io/includeOutboundPorts":    "8080,9090",
			"traffic.sidecar.istio.io/excludeOutboundPorts":    "3306,5432",
			"traffic.sidecar.istio.io/includeInboundPorts":     "*",
			"traffic.sidecar.istio.io/excludeInboundPorts":     "22,15020",
			"traffic.sidecar.istio.io/excludeInterfaces":       "net1",
			"istio.io/reroute-virtual-interfaces":              "tap0",
		},
		Containers: []interception.Container{{Name: "istio-proxy", Env: map[string]string{
			"ISTIO_META_DNS_CAPTURE": "true", "INVALID_DROP": "true",
			"ISTIO_OUTBOUND_OWNER_GROUPS": "100,200", "ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE": "300",
		}}},
	}
}
