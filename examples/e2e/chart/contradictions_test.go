// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"strings"
	"testing"
)

// TestContradictions checks that the chart refuses values with which each daemon would end at its
// start, by their names here or those of the settings.
func TestContradictions(t *testing.T) {
	t.Parallel()
	const socket = "settings.ztunnelUdsAddress: "
	for text, want := range map[string]string{
		"ambient: {enabled: true, way: vxlan}":                                                     "ambient.way: vxlan needs ambient.mode=node",
		"ambient: {enabled: true, way: vxlan, mode: in-pod}":                                       "ambient.way: vxlan needs ambient.mode=node",
		"profile: ambient\nsettings: {ambientWay: vxlan}":                                          "ambient.way: vxlan needs ambient.mode=node",
		"ambient: {enabled: true, mode: node}\nsettings: {ambientMode: in-pod, ambientWay: vxlan}": "ambient.way: vxlan needs ambient.mode=node",
		"ambient: {enabled: true, mode: node}\nsettings: {ambientExisting: capture}":               "settings.ambientExisting: capture needs ambient.mode=in-pod",
		"settings: {ambientEnabled: true, ambientMode: node, ambientExisting: capture}":            "settings.ambientExisting: capture needs ambient.mode=in-pod",
		"watchPods: false\nsettings: {readinessTaint: a/b}":                                        "settings.readinessTaint: it needs watchPods",
		"monitoringPort: 0\npodMonitor: {enabled: true}":                                           "podMonitor.enabled: with monitoringPort=0",
		"profile: ambient\nsettings: {ztunnelUdsAddress: /x.sock}":                                 "'/settings/ztunnelUdsAddress'",
		"profile: ambient\nsettings: {ztunnelUdsAddress: /x/../x.sock}":                            socket + "the directory / of the node",
		"profile: ambient\nsettings: {ztunnelUdsAddress: /run/x.sock}":                             socket + "the directory /run of the node",
		"profile: ambient\nsettings: {ztunnelUdsAddress: /var//run/x.sock}":                        socket + "the directory /var/run of the node",
		"profile: ambient\nsettings: {ztunnelUdsAddress: /proc/1/x.sock}":                          socket + "the directory /proc/1 of the node",
		"profile: ambient\nsettings: {ztunnelUdsAddress: /var/run/istio-cni/x.sock}":               socket + "/var/run/istio-cni has another purpose",
	} {
		if _, err := load(t).Render(standard(), values(t, text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %s", text, err, want)
		}
	}
	for _, text := range []string{
		"ambient: {way: vxlan}\nsettings: {ambientExisting: capture, ztunnelUdsAddress: /run/x.sock}", // ambient mode is off
		"ambient: {enabled: true, mode: in-pod, way: vxlan}\nsettings: {ambientMode: node}",
		"ambient: {enabled: true}\nsettings: {ambientExisting: capture, ztunnelUdsAddress: /run/proxy/agent.sock}",
		"settings: {readinessTaint: a/b}\nmonitoringPort: 0",
	} {
		render(t, text)
	}
}
