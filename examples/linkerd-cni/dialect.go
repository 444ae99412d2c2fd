// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/sidecar"
)

const prefix = "config.linkerd.io/"

// dialect returns the vocabulary of Linkerd's CNI plugin, with its chart's values as defaults.
func dialect() sidecar.Dialect {
	return sidecar.Dialect{
		Name:       "linkerd",
		Membership: sidecar.Membership{ProxyContainer: "linkerd-proxy", RuleContainer: "linkerd-init"},
		Base: sidecar.Redirect{
			Proxy:      sidecar.Proxy{InboundPort: 4143, OutboundPort: 4140},
			Inbound:    sidecar.Inbound{Include: interception.AllPorts()},
			Outbound:   sidecar.Outbound{Include: interception.AllPrefixes()},
			Interfaces: sidecar.InterfacePolicy{Exclude: interception.Interfaces("lo")},
		},
		Fields: []sidecar.Field{
			annotation(sidecar.ParameterProxyUIDs, "proxy-uid", "2102", func(r *sidecar.Redirect, value string) (err error) {
				r.Proxy.UIDs, err = interception.ParseUIDSet(value)
				return err
			}),
			annotation(sidecar.ParameterProxyGIDs, "proxy-gid", "", func(r *sidecar.Redirect, value string) (err error) {
				r.Proxy.GIDs, err = interception.ParseGIDSet(value)
				return err
			}),
			annotation(sidecar.ParameterInboundExclude, "skip-inbound-ports", "", func(r *sidecar.Redirect, value string) error {
				ports, err := interception.ParsePortSet(value)
				// The pod's ports are added to the proxy's own.
				r.Inbound.Exclude = ports.Union(interception.Ports(4190, 4191))
				return err
			}),
			annotation(sidecar.ParameterOutboundExcludePorts, "skip-outbound-ports", "", func(r *sidecar.Redirect, value string) (err error) {
				r.Outbound.ExcludePorts, err = interception.ParsePortSet(value)
				return err
			}),
			{
				Parameter: sidecar.ParameterOutboundExcludePorts, Kind: interception.SourceLabel,
				Keys: []string{"linkerd.io/control-plane-component"},
				Set: func(r *sidecar.Redirect, value string) error {
					if value != "" {
						// These are the API server's ports.
						r.Outbound.ExcludePorts = r.Outbound.ExcludePorts.Union(interception.Ports(443, 6443))
					}
					return nil
				},
			},
		},
		Ignored: []sidecar.IgnoredKey{{
			Kind: interception.SourceAnnotation, Key: prefix + "skip-subnets",
			Reason: "inbound connections are not left alone by their source: name ports, in " + prefix + "skip-inbound-ports",
		}},
	}
}

func annotation(p sidecar.Parameter, key, otherwise string, set func(*sidecar.Redirect, string) error) sidecar.Field {
	return sidecar.Field{Parameter: p, Kind: interception.SourceAnnotation, Keys: []string{prefix + key}, Default: otherwise, Set: set}
}
