/** A shop with one order. */
const refunds = new Map<string, { order: string; amount: number }>();

export const shop = {
  ordersOf: (_user: string) => [{ order: 'o-1', item: 'A lamp', price: 120 }],
  async refund(order: string, amount: number, key: string) {
    refunds.set(key, { order, amount });
    return { order, refunded: amount };
  },
};
