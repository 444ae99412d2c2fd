// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/meshcni/meshcni/interception/trace"
)

type journeyView struct {
	Result   string        `json:"result"`
	Outcomes []outcomeView `json:"outcomes"`
	Answer   *journeyView  `json:"answer,omitempty"`
}

// follow prints the journeys of packets through a world that a file describes.
func follow(command *cobra.Command, file string, packets []string, form string, answers bool) error {
	world, err := readWorld(command, file)
	if err != nil {
		return err
	}
	var text strings.Builder
	views := make([]journeyView, len(packets))
	for i, line := range packets {
		packet, err := packetOf(line)
		if err != nil {
			return err
		}
		journeys, err := conversation(world, packet, answers)
		if err != nil {
			return fmt.Errorf("packet %q: %w", line, err)
		}
		views[i] = viewJourneys(journeys)
		if i > 0 && form != "short" {
			text.WriteString("\n")
		}
		for _, j := range journeys {
			if form == "short" {
				fmt.Fprintln(&text, j)
			} else {
				text.WriteString(j.Report())
			}
		}
	}
	if form == "json" {
		return writeJSON(command.OutOrStdout(), views)
	}
	_, err = fmt.Fprint(command.OutOrStdout(), text.String())
	return err
}

// packetOf parses a packet after the name of its namespace, as in "pod: tcp uid 0 gid 0 >
// 192.0.2.1:443".
func packetOf(line string) (trace.Packet, error) {
	namespace, text, named := strings.Cut(line, ": ")
	if !named {
		return trace.Packet{}, fmt.Errorf("packet %q starts in no namespace: write \"pod: tcp uid 0 gid 0 > 192.0.2.1:443\"", line)
	}
	packet, err := trace.ParsePacket(text)
	if err != nil {
		return trace.Packet{}, err
	}
	switch from := packet.From.(type) {
	case trace.Socket:
		from.Namespace = namespace
		packet.From = from
	case trace.Arrival:
		from.Namespace = namespace
		packet.From = from
	}
	return packet, nil
}

// conversation follows a packet and, if it arrives or leaves the world, its answer.
func conversation(world trace.World, packet trace.Packet, answers bool) ([]trace.Journey, error) {
	there, err := trace.Follow(world, packet, nil)
	if err != nil || !answers {
		return []trace.Journey{there}, err
	}
	end := there.End()
	var from trace.Origin = trace.Socket{Namespace: end.Namespace}
	switch end.Verdict {
	case trace.Sent:
		from = trace.Arrival{Namespace: end.Namespace, Link: end.Link}
	case trace.Delivered:
	case trace.Refused, trace.Dropped, trace.Unroutable, trace.Rejected, trace.Unknown:
		return []trace.Journey{there}, nil
	}
	back, err := trace.Follow(world, end.Answer(from), there.Flows)
	return []trace.Journey{there, back}, err
}

func viewJourneys(journeys []trace.Journey) journeyView {
	view := journeyView{Result: journeys[0].String()}
	for _, o := range journeys[0].Outcomes {
		outcome := viewOutcome(o)
		outcome.Namespace = o.Namespace
		view.Outcomes = append(view.Outcomes, outcome)
	}
	if len(journeys) > 1 {
		answer := viewJourneys(journeys[1:])
		view.Answer = &answer
	}
	return view
}
