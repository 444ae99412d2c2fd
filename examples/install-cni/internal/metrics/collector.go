// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/meshcni/meshcni/examples/internal/contact"
)

// ClaimStates returns the states of the node's claim: held by this daemon, held by a newer one,
// never taken, missing, or unreadable.
func ClaimStates() []string { return []string{"held", "superseded", "free", "missing", "unreadable"} }

// collector reads the sources when it is scraped.
type collector struct {
	from                                                                  Sources
	ready, partReady, partContested, partRestarts, tokenAge, claim, build *prometheus.Desc
	serverAge, serverFailures                                             *prometheus.Desc
}

func newCollector(from Sources) *collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &collector{
		from:          from,
		ready:         desc("istio_cni_install_ready", "1 when the plugin is installed and all parts that count are ready."),
		partReady:     desc("meshcni_part_ready", "1 when the part does what it is there for.", "part"),
		partContested: desc("meshcni_part_contested", "1 while another program keeps undoing what the part does.", "part"),
		partRestarts:  desc("meshcni_part_restarts_total", "How often the part failed as a whole and was started again.", "part"),
		tokenAge:      desc("meshcni_service_account_token_age_seconds", "How long ago the service account's token was written."),
		claim:         desc("meshcni_claim", "1 for the state that the claim on the node is in.", "state"),
		build:         desc("meshcni_build_info", "1, with the daemon's version.", "version"),
		serverAge:     desc("meshcni_api_server_silence_seconds", "For how long the API server has said nothing about the node's pods."),
		serverFailures: desc("meshcni_api_server_failures",
			"How often the API server has failed since it last said something about the node's pods, under the kind of the last failure.", "kind"),
	}
}

// Describe sends all descriptions.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{
		c.ready, c.partReady, c.partContested, c.partRestarts, c.tokenAge, c.claim, c.build, c.serverAge, c.serverFailures,
	} {
		to <- desc
	}
}

// Collect reads the sources. It omits the token's age if there is no token.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	c.from.State.Look(context.Background())
	gauge(c.build, 1, c.from.Version)
	gauge(c.ready, flag(len(c.from.State.Reasons()) == 0))
	for _, condition := range c.from.State.Conditions() {
		gauge(c.partReady, flag(condition.Ready), condition.Part)
		gauge(c.partContested, flag(condition.Contested != ""), condition.Part)
		to <- prometheus.MustNewConstMetric(c.partRestarts, prometheus.CounterValue, float64(condition.Restarts), condition.Part)
	}
	if written, err := c.from.TokenTime(); err == nil {
		gauge(c.tokenAge, c.from.Now().Sub(written).Seconds())
	}
	now := c.from.Claim()
	for _, state := range ClaimStates() {
		gauge(c.claim, flag(state == now), state)
	}
	server := c.from.Server()
	if server == nil {
		return
	}
	gauge(c.serverAge, server.Age)
	for _, kind := range contact.Kinds() {
		gauge(c.serverFailures, float64(server.Failures)*flag(kind == server.Failure), kind)
	}
}

func flag(set bool) float64 {
	if set {
		return 1
	}
	return 0
}
