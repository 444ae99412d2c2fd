// SPDX-License-Identifier: Apache-2.0

package render

import (
	"bytes"
	"fmt"

	"github.com/meshcni/meshcni/interception"
)

// writeHead writes the objects that nft has no words for, a comment each.
func writeHead(b *bytes.Buffer, p *interception.Plan) {
	for _, object := range p.Objects {
		switch o := object.(type) {
		case interception.Link:
			fmt.Fprintf(b, "# %s # %s: %s\n", linkWords(o), o.ID, o.Why)
		case interception.Address:
			fmt.Fprintf(b, "# ip address add %s dev %s # %s: %s\n", o.Prefix, o.Device, o.ID, o.Why)
		case interception.Sysctl:
			fmt.Fprintf(b, "# sysctl -w net/%s=%d # %s: %s\n", o.Key, o.Value, o.ID, o.Why)
		case interception.Route:
			fmt.Fprintf(b, "# %s # %s: %s\n", routeWords(o), o.ID, o.Why)
		case interception.PolicyRule:
			fmt.Fprintf(b, "# ip %s rule add priority %d fwmark %s table %s # %s: %s\n",
				familyOption(o.Family), o.Priority, o.Mark, tableName(o.Table), o.ID, o.Why)
		}
	}
}

func linkWords(l interception.Link) string {
	if l.Geneve == nil {
		return fmt.Sprintf("ip link add %s up type dummy", l.Name)
	}
	return fmt.Sprintf("ip link add %s up type geneve id %d remote %s dstport %d", l.Name, l.Geneve.VNI, l.Geneve.Remote, l.Geneve.Port)
}

func routeWords(r interception.Route) string {
	family := familyOption(interception.FamilyOf(r.Destination.Addr()))
	words := fmt.Sprintf("ip %s route add %s %s dev %s", family, r.Type, r.Destination, r.Device)
	if r.Gateway.IsValid() {
		words += " via " + r.Gateway.String()
	}
	return words + " table " + tableName(r.Table)
}

func familyOption(f interception.Family) string {
	if f == interception.IPv6 {
		return "-6"
	}
	return "-4"
}

func tableName(t interception.RoutingTable) string {
	if t == 0 {
		return "main"
	}
	return fmt.Sprint(uint32(t))
}
